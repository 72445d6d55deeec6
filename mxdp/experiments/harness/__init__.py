"""What an experiment is, and how it is run. Says nothing about any one of them."""
