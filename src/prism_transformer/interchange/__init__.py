"""Other people's formats: import and export."""
