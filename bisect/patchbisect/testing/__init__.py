"""Stand-ins that users and we test with: a fake server, a fake SGLang repository, fake GPUs."""
