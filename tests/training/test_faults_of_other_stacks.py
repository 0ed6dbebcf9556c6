"""Faults that users of other training stacks met, and the test here that would see each; or why it cannot arise.

The table is checked: every test that it names must be there.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SEEN_BY = {
    "resume draws the same batches again": [
        "training/test_resume.py::test_the_batches_after_a_stop_are_those_of_the_unbroken_run",
        "training/test_resume.py::test_stopped_at_a_step_and_gone_on_with",
    ],
    "a later epoch repeats the order, or a second resume is misaligned": [
        "training/test_resume.py::test_the_text_is_read_more_than_twice",
        "training/test_resume.py::test_stopped_twice_in_a_row_and_gone_on_with",
        "data/test_batches.py::test_each_epoch_holds_each_window_once",
    ],
    "rank 0's loader state for all": [
        "training/test_parallel.py::test_resumed_on_as_many_ranks_it_is_bit_for_bit_the_unbroken_run",
    ],
    "another number of ranks drops the loader state": [
        "training/test_parallel.py::test_a_signal_to_one_rank_in_mid_step_saves_on_all_and_goes_on_with_1_2_and_4",
    ],
    "the learning rate restarts or jumps": [
        "training/test_interrupted.py::test_a_changed_horizon_is_refused_or_accepted_noted_and_followed",
        "training/test_optimizer.py::test_the_rate_rises_then_never_rises_again_and_stays_within_its_limits",
    ],
    "the data changed between runs": [
        "training/test_origin.py::test_the_files_of_tokens_that_differ_are_named",
        "training/test_interrupted.py::test_accepted_data_go_on_at_the_same_step",
        "data/test_shards.py::test_missing_shard_is_refused_by_name",
    ],
    "each rank reads the same samples, or another text": [
        "training/test_parallel.py::test_losses_and_norms_are_those_of_one_process",
        "training/test_parallel.py::test_a_rank_that_reads_another_text_is_named_by_all",
    ],
    "empty documents": ["data/test_preparation.py::test_empty_and_blank_documents_are_skipped_and_counted"],
    "the wrong tokenizer or vocabulary": [
        "training/test_origin.py::test_model_and_tokenizer_are_the_run_and_no_flag_changes_them",
        "data/test_corpus.py::test_shard_of_another_tokenizer_is_refused",
        "data/test_preparation.py::test_unknown_share_is_counted_and_warned_of",
    ],
    "ids cut to 16 bits": [
        "data/test_shards.py::test_item_size_follows_the_vocabulary",
        "data/test_corpus.py::test_corrupt_id_is_reported_with_shard_and_position",
    ],
    "nobody knows what packing drops": [
        "data/test_batches.py::test_kept_and_dropped_make_the_whole",
        "data/test_preparation.py::test_kept_and_dropped_make_the_total",
    ],
    "compile's prefix in the keys, in front or in the middle": [
        "test_checkpoint.py::test_weights_of_a_compiled_model_have_plain_names",
        "training/test_interrupted.py::test_names_and_numbers_of_a_compiled_model_are_those_of_a_plain_one",
        "training/test_parallel.py::test_the_checkpoints_do_not_know_how_many_wrote_them",
    ],
    "missing keys load as random weights": ["test_checkpoint.py::test_weights_that_lack_a_tensor_are_refused"],
    "killed during a save": [
        "training/test_state.py::test_killed_at_any_moment_of_a_save_the_latest_is_whole",
        "training/test_interrupted.py::test_killed_at_five_random_moments_it_is_always_loadable_and_exact",
    ],
    "the disk is full": [
        "training/test_interrupted.py::test_a_real_file_system_of_50_megabytes",
        "training/test_interrupted.py::test_a_failed_save_removes_older_checkpoints_and_is_tried_again",
        "training/test_saving.py::test_room_for_all_that_is_kept_is_quiet_and_less_is_warned_of",
    ],
    "half a checkpoint is taken for the latest": [
        "training/test_interrupted.py::test_half_a_checkpoint_is_skipped_and_told",
        "training/test_state.py::test_the_oldest_are_pruned_and_the_latest_never",
    ],
    "preempted and not saved, or ranks disagree": [
        "training/test_parallel.py::test_a_signal_to_one_rank_in_mid_step_saves_on_all_and_goes_on_with_1_2_and_4",
        "training/test_interrupted.py::test_a_signal_in_an_evaluation_is_heeded_before_its_next_batch",
        "training/test_torchrun.py::test_stopped_by_the_scheduler_then_a_worker_killed_it_ends_as_the_unbroken_run",
        "training/test_signals.py::test_a_signal_told_twice_by_a_launcher_is_one",
    ],
    "pickled checkpoints no longer load": ["training/test_state.py::test_a_checkpoint_holds_no_pickle"],
    "the tied embedding": [
        "test_checkpoint.py::test_a_tied_embedding_is_stored_once_and_tied_again",
        "training/test_parallel.py::test_inside",
    ],
    "loaded weights are initialised again": ["test_checkpoint.py::test_every_tensor_comes_back_bit_for_bit"],
    "a loss that is not finite": [
        "training/test_loop.py::test_a_gradient_that_is_not_finite_never_reaches_the_weights",
        "training/test_loop.py::test_poisoned_weights_never_become_a_checkpoint",
    ],
    "clipping by a local norm": [
        "training/test_parallel.py::test_losses_and_norms_are_those_of_one_process",
        "training/test_loop.py::test_the_gradient_is_clipped_to_its_largest_norm_and_0_is_no_limit",
    ],
    "the loss is averaged by micro-batch": [
        "training/test_loop.py::test_micro_batches_change_nothing_but_the_rounding",
        "model/test_modeling_prism.py::test_ignored_labels_do_not_count",
    ],
    "tokens a step change with the devices": [
        "training/test_parallel.py::test_tokens_per_step_that_the_ranks_cannot_share_are_refused_with_the_nearest",
        "training/test_parallel.py::test_three_ranks_that_cannot_share_a_step_all_say_so",
    ],
    "validation loss of one rank, or a rank without a batch": ["training/test_parallel.py::test_inside"],
    "a time-out while rank 0 saves": [
        "training/test_parallel.py::test_the_others_wait_while_rank_0_saves_for_longer_than_their_time_out",
    ],
    "tokens per second over the wrong window": [
        "training/test_metrics.py::test_tokens_per_second_are_tokens_over_the_seconds_of_their_window",
        "training/test_loop.py::test_tokens_per_second_count_training_and_neither_evaluation_nor_saving",
    ],
    "weights under another schedule": [
        "test_checkpoint.py::test_golden_logits_refuse_another_schedule_whose_identity_was_edited_too",
        "training/test_state.py::test_an_edited_schedule_is_refused_with_both",
    ],
    "a capability is probed before the user's setting is read": [
        "training/test_device.py::test_a_precision_asked_for_is_taken",
        "training/test_device.py::test_an_old_gpu_computes_in_float32",
    ],
    "restarted processes read the addresses of dead ones": [
        "training/test_rendezvous.py::test_each_start_settles_one_name_that_no_other_start_had",
        "training/test_torchrun.py::test_stopped_by_the_scheduler_then_a_worker_killed_it_ends_as_the_unbroken_run",
    ],
}

CANNOT_ARISE = {
    "loader workers read the same samples": "there are none: a batch is read from mapped files by one function of the "
    "seed and the step",
    "a scaler's state is lost": "there is none: products are in bfloat16 or float32, never in float16",
    "pruning races with a save in the background": "saves are not made in the background",
    "an experiment tracker fails and ends the run": "none is called: metrics go to a file of the run folder",
    "a deterministic switch that keeps other kernels": "there is no such switch; on a CPU two runs of a seed are equal "
    "bit for bit (training/test_loop.py), and of a GPU's kernels nothing is claimed",
}


@pytest.mark.parametrize("fault", SEEN_BY)
def test_the_test_of_each_fault_is_there(fault):
    assert SEEN_BY[fault]
    for place in SEEN_BY[fault]:
        file, name = place.split("::")
        assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), place


def test_what_cannot_arise_is_not_there():
    """No background saves, loaders, scalers or trackers in the code that trains."""
    source = (TESTS.parent / "src" / "prism_transformer" / "training").glob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in source)
    assert not re.search(r"GradScaler|DataLoader|ThreadPool|threading\.Thread|wandb|torch\.float16", text)
    assert CANNOT_ARISE
