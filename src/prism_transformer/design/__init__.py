"""Knowledge about schedules: families, guidelines, the space of all of them, drawings. Nothing here imports torch."""
