"""What held up the end of a launch, and what a change would bring: launches as graphs of spans."""
