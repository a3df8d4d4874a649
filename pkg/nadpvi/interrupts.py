"""What an interrupted private run leaves behind."""

from nadpvi.containers.release import Release

__all__ = ["RunInterrupted"]


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C, or an error in a callback or after the last step, ended a private run.

    Attributes
    ----------
    release : Release
        The partial trace, with the guarantee of the steps that were drawn; of all that was planned where a
        callback watched them, or where the curvature after the last step failed or was interrupted. Save it:
        that much is spent.
    steps_left : int
        How many steps a checkpoint could still go on with.
    """

    def __init__(
        self,
        release: Release,
        *,
        num_done: int,
        num_steps: int,
        failure: BaseException | None = None,
        where: str = "the callback",
    ) -> None:
        by = "" if failure is None else f": {where} raised {type(failure).__name__}: {failure}"
        super().__init__(f"interrupted after {num_done} of {num_steps} steps{by}")
        self.release = release
        self.steps_left = num_steps - num_done
