"""What recording, capturing and bisecting cost, each as a ratio measured in one run."""
