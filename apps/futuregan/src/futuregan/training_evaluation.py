"""The evaluation within a training: scores on the evaluation clips at the current resolution."""

from __future__ import annotations

import torch

from futuregan import method
from futuregan.scores import METHODS, ScoreSums
from futuregan.state import Trained
from trainkit.journal import Evaluation
from trainkit.session import Session


@torch.no_grad()
def evaluate(trained: Trained, session: Session) -> Evaluation | None:
    """Return the scores of the generator `trained.best`; None if a signal interrupts."""
    stage, strategy, loader = trained.stage, trained.strategy, trained.data.evaluation
    sums = ScoreSums(stage.size, trained.settings.future, strategy.device)
    with session.counter("evaluating", loader.plan(stage.batch).steps, "batches") as done:
        for batch in loader.epoch(0, 0, stage.batch):
            if strategy.any(session.stop_asked):
                return None
            clips = method.prepare_clips(batch.clips.to(strategy.device), stage)
            past, truth = clips.tensor_split([trained.settings.past], 2)
            sums.add(trained.best(past, stage.fade) if len(clips) else truth, past, truth)
            done.add()
    scores = sums.mean_over(strategy)
    values = {
        measure if kind == "prediction" else f"{measure}_{kind}": scores.mean(kind, measure)
        for measure in scores.measures for kind in METHODS
    }
    values |= {f"{name}_margin": scores.margin(name)
              for name in ("psnr", "ssim") if name in scores.measures}
    text = (f"PSNR {values['psnr']:.2f} dB, last frame repeated {values['psnr_copy_last']:.2f}, "
            f"linear {values['psnr_linear']:.2f}")
    if "ssim" in values:
        text += f"  SSIM {values['ssim']:.3f}, {values['ssim_copy_last']:.3f}"
    return Evaluation({f"eval_{name}": value for name, value in values.items()}, values, text)
