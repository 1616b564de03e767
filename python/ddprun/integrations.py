"""Callbacks that add ddprun's calls to the training loop of another library. A library is imported only when its callback is
created, so this module does not require any of the libraries.

    from ddprun import integrations
    trainer = transformers.Trainer(..., callbacks=[integrations.hugging_face()])
    trainer = lightning.Trainer(..., callbacks=[integrations.lightning()])
    accelerator = accelerate.Accelerator(log_with=integrations.accelerate())
"""

import os

import ddprun

_STEP_ARGUMENTS = ("n", "samples", "total", "epoch", "epochs")  # names of step()'s arguments, which are not metrics

__all__ = ["accelerate", "hugging_face", "lightning"]


def hugging_face():
    """Returns a callback for transformers.Trainer. The callback reports progress and checkpoints. After a stop request all
    ranks save at the same step, and train() returns. The script must then end or call ddprun.stopped(). In the next run,
    `resume_from_checkpoint` loads the saved state."""
    from transformers import TrainerCallback

    _handle_stops()

    class Callback(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            _announce_should_save()

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
    """Returns a callback for Lightning's Trainer. The callback reports progress. After a stop request all ranks save a
    checkpoint at the same step, and fit() returns. The script must then end. In the next run, fit(ckpt_path=...) loads the
    saved state. The checkpoint is `folder`/ddprun.ckpt; by default, `folder` is default_root_dir."""
    from lightning.pytorch import Callback

    # At its end, fit() restores the handlers that it found at its start. So our handlers are installed before fit() runs.
    _handle_stops()

    class DdprunIntegration(Callback):
        def on_train_start(self, trainer, module):
            _announce_should_save()
            _replace_handlers_of(getattr(trainer, "_signal_connector", None))

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            total = trainer.estimated_stepping_batches  # the result is infinite or -1 if the length of the data is unknown
            ddprun.step(trainer.global_step, loss=loss, total=int(total) if 0 < total < float("inf") else None, epoch=trainer.current_epoch,
                        epochs=max(0, trainer.max_epochs or 0))
            if ddprun.should_save():
                path = os.path.join(folder or trainer.default_root_dir, "ddprun.ckpt")
                trainer.save_checkpoint(path)
                if trainer.is_global_zero:
                    ddprun.saved(path, step=trainer.global_step)
                trainer.should_stop = True

    return DdprunIntegration()


def _handle_stops():
    if ddprun._channel is not None:
        ddprun._channel.handle_stops()


def _announce_should_save():
    if ddprun._channel is not None:
        ddprun._channel.announce_should_save()


def _replace_handlers_of(connector):
    """Replaces Lightning's handler of SIGTERM by ours. Lightning's handler runs a broadcast inside the signal handler. It also
    ends training after the current batch, although other ranks may be at another batch. If the script has a handler, too,
    nothing is replaced."""
    ours = ddprun._channel.signals if ddprun._channel is not None and connector is not None else None

    def is_lightnings(handler):
        parts = getattr(handler, "signal_handlers", None)
        return bool(parts) and all(getattr(part, "__self__", None) in (connector, ours) for part in parts)

    if ours is not None:
        ours.take(is_lightnings)


def accelerate():
    """Returns a tracker for accelerate's Accelerator(log_with=...). It reports accelerator.log(values, step=n) as step n. A
    tracker cannot end the training loop, so the script must still call should_save()."""
    from accelerate.tracking import GeneralTracker

    class DdprunIntegration(GeneralTracker):
        name = "ddprun"
        requires_logging_directory = False
        main_process_only = False  # each rank reports its own steps, so accelerate must call the tracker on all ranks

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
                ddprun.step(step, **{name: value for name, value in figures.items() if name not in _STEP_ARGUMENTS})

    return DdprunIntegration()
