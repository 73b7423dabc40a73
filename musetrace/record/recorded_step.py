"""What a program has of a step that is recorded."""

from __future__ import annotations


class RecordedStep:
    """The value of ``with recorder.step() as step``."""

    def __init__(self) -> None:
        self.made: object = None

    def keep_output(self, made: object) -> None:
        """Keep a hash of what the step made, so that ``musetrace compare`` can tell whether two runs agree.

        It is read and hashed at the block's end, outside of the step's time; that waits for the GPU whose
        tensor it is. A second call replaces the first. What cannot be read is said once, and not kept.

        Args:
            made: a numpy array, a torch tensor or bytes.
        """
        self.made = made
