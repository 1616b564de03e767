"""The three lines of `import ddprun` as a callback of somebody else's training loop. Each library is imported when its callback is asked
for, so this file can be read without any.

    from ddprun import integrations
    trainer = transformers.Trainer(..., callbacks=[integrations.hugging_face()])
    trainer = lightning.Trainer(..., callbacks=[integrations.lightning()])
    accelerator = accelerate.Accelerator(log_with=integrations.accelerate())
"""

import os

import ddprun

_OF_STEP = ("n", "samples", "total", "epoch", "epochs")  # step()'s own arguments, which are no figures

__all__ = ["accelerate", "hugging_face", "lightning"]


def hugging_face():
    """For transformers.Trainer: progress, checkpoints, and a save at one step on all ranks before a stop. Let the script return, or
    end with ddprun.stopped(), when train() has returned; `resume_from_checkpoint` takes up what was saved."""
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
    """For Lightning's Trainer: progress, and a checkpoint at one step on all ranks before a stop, `folder`/ddprun.ckpt (in default_root_dir
    if it is not given). Let the script return when fit() has; fit(ckpt_path=...) takes up what was saved."""
    from lightning.pytorch import Callback

    _handle_stops()  # before fit(), which gives the actions back that it found

    class OfDdprun(Callback):
        def on_train_start(self, trainer, module):
            _will_ask()
            _replace_handlers_of(getattr(trainer, "_signal_connector", None))

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            total = trainer.estimated_stepping_batches  # infinite, or -1 where nobody knows: data without a length
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
    """Lightning's own handler of SIGTERM broadcasts a tensor from within the handler and ends training after the batch, whatever the other
    ranks do. A handler of the script stays, and then Lightning's does as well."""
    ours = ddprun._channel.signals if ddprun._channel is not None and connector is not None else None

    def is_lightnings(handler):
        parts = getattr(handler, "signal_handlers", None)
        return bool(parts) and all(getattr(part, "__self__", None) in (connector, ours) for part in parts)

    if ours is not None:
        ours.take(is_lightnings)


def accelerate():
    """For accelerate's Accelerator(log_with=...): what the script gives to accelerator.log(values, step=n) is told as step n. Saving and
    stopping is the script's loop, so should_save() stays a line of its own."""
    from accelerate.tracking import GeneralTracker

    class OfDdprun(GeneralTracker):
        name = "ddprun"
        requires_logging_directory = False
        main_process_only = False  # each rank tells its steps

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
