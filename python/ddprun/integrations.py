"""The three lines of `import ddprun` as a callback for the training loop of another library. A library is imported only when its callback is created,
so this file needs none of them.

    from ddprun import integrations
    trainer = transformers.Trainer(..., callbacks=[integrations.hugging_face()])
    trainer = lightning.Trainer(..., callbacks=[integrations.lightning()])
    accelerator = accelerate.Accelerator(log_with=integrations.accelerate())
"""

import os

import ddprun

_OF_STEP = ("n", "samples", "total", "epoch", "epochs")  # step()'s own arguments, not figures

__all__ = ["accelerate", "hugging_face", "lightning"]


def hugging_face():
    """For transformers.Trainer: reports progress and checkpoints, and before a stop saves at the same step on all ranks. After train() has returned,
    let the script return or call ddprun.stopped(). `resume_from_checkpoint` continues from the saved state."""
    from transformers import TrainerCallback

    _handle_stops()

    class Callback(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            _will_ask()

        def on_step_end(self, args, state, control, **_):
            ddprun.step(state.global_step, total=state.max_steps, samples=args.train_batch_size * args.gradient_accumulation_steps,
                        epoch=int(state.epoch or 0))
            if ddprun.should_save():
                control.should_save = control.should_training_stop = True
            return control

        def on_log(self, args, state, control, logs=None, **_):
            figures = {name: value for name, value in (logs or {}).items() if name in ("loss", "grad_norm", "eval_loss")}
            lr = (logs or {}).get("learning_rate")
            ddprun.step(state.global_step, lr=lr, **figures)

        def on_save(self, args, state, control, **_):
            if state.is_world_process_zero:
                ddprun.saved(os.path.join(args.output_dir, "checkpoint-%d" % state.global_step), step=state.global_step)

    return Callback()


def lightning(folder=None):
    """For Lightning's Trainer: reports progress, and before a stop saves a checkpoint at the same step on all ranks, `folder`/ddprun.ckpt (default:
    in default_root_dir). Let the script return after fit(). fit(ckpt_path=...) continues from the saved state."""
    from lightning.pytorch import Callback

    _handle_stops()  # before fit(), which restores the actions that it found

    class OfDdprun(Callback):
        def on_train_start(self, trainer, module):
            _will_ask()
            _replace_handlers_of(getattr(trainer, "_signal_connector", None))

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            total = trainer.estimated_stepping_batches  # infinite or -1 if unknown, for data without a length
            ddprun.step(trainer.global_step, loss=loss, total=int(total) if 0 < total < float("inf") else None, epoch=trainer.current_epoch,
                        epochs=max(0, trainer.max_epochs or 0))
            if ddprun.should_save():
                path = os.path.join(folder or trainer.default_root_dir, "ddprun.ckpt")
                trainer.save_checkpoint(path)
                if trainer.is_global_zero:
                    ddprun.saved(path, step=trainer.global_step)
                trainer.should_stop = True

    return OfDdprun()


def _handle_stops():
    if ddprun._channel is not None:
        ddprun._channel.handle_stops()


def _will_ask():
    if ddprun._channel is not None:
        ddprun._channel.will_ask()


def _replace_handlers_of(connector):
    """Lightning's handler of SIGTERM broadcasts a tensor inside the handler and ends training after the batch, independent of the other ranks. So it
    is replaced. A handler of the script stays, and then Lightning's stays too."""
    ours = ddprun._channel.signals if ddprun._channel is not None and connector is not None else None

    def is_lightnings(handler):
        parts = getattr(handler, "signal_handlers", None)
        return bool(parts) and all(getattr(part, "__self__", None) in (connector, ours) for part in parts)

    if ours is not None:
        ours.take(is_lightnings)


def accelerate():
    """For accelerate's Accelerator(log_with=...): reports accelerator.log(values, step=n) as step n. The script's own loop must save and stop, so it
    still needs a call of should_save()."""
    from accelerate.tracking import GeneralTracker

    class OfDdprun(GeneralTracker):
        name = "ddprun"
        requires_logging_directory = False
        main_process_only = False  # each rank reports its steps

        def __init__(self):
            super().__init__()

        @property
        def tracker(self):
            return ddprun

        def store_init_configuration(self, values):
            pass

        def log(self, values, step=None, **_):
            figures = {name[len("train/"):] if name.startswith("train/") else name.replace("/", "_"): value
                       for name, value in values.items() if not isinstance(value, (str, dict))}
            if step is not None:
                ddprun.step(step, **{name: value for name, value in figures.items() if name not in _OF_STEP})

    return OfDdprun()
