"""Three small trainings on handwritten digits, each with a bug that people really meet."""
