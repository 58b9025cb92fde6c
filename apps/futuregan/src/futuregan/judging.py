"""The evaluation in the training loop: scores on held-out clips, at the present resolution."""

from __future__ import annotations

import torch

from futuregan import method
from futuregan.scores import METHODS, Sums
from futuregan.state import Trained
from trainkit.journal import Evaluation
from trainkit.session import Session


@torch.no_grad()
def evaluate(trained: Trained, session: Session) -> Evaluation | None:
    """Return the scores of the best generator; None if a signal cut it short."""
    moment, strategy, loader = trained.moment, trained.strategy, trained.data.evaluation
    sums = Sums(moment.size, trained.settings.future, strategy.device)
    with session.counter("evaluating", loader.plan(moment.batch).steps, "batches") as done:
        for batch in loader.epoch(0, 0, moment.batch):
            if strategy.any(session.stop_asked):
                return None
            clips = method.prepared(batch.clips.to(strategy.device), moment)
            past, truth = clips.tensor_split([trained.settings.past], 2)
            sums.add(trained.best(past, moment.fade) if len(clips) else truth, past, truth)
            done.add()
    scores = sums.over(strategy)
    found = {
        measure if of == "prediction" else f"{measure}_{of}": scores.mean(of, measure)
        for measure in scores.measures for of in METHODS
    }
    found |= {f"{name}_margin": scores.margin(name)
              for name in ("psnr", "ssim") if name in scores.measures}
    text = (f"PSNR {found['psnr']:.2f} dB, last frame repeated {found['psnr_copy_last']:.2f}, "
            f"linear {found['psnr_linear']:.2f}")
    if "ssim" in found:
        text += f"  SSIM {found['ssim']:.3f}, {found['ssim_copy_last']:.3f}"
    return Evaluation({f"eval_{name}": value for name, value in found.items()}, found, text)
