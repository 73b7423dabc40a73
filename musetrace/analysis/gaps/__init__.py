"""What blocks that do not work wait for, and who was late."""
