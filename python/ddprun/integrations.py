"""The three lines of `import ddprun` as a callback of somebody else's training loop. Each library is imported when its callback is asked
for, so this file can be read without any.

    from ddprun.integrations import hugging_face
    trainer = transformers.Trainer(..., callbacks=[hugging_face()])
"""

import os

import ddprun

__all__ = ["hugging_face"]


def hugging_face():
    """For transformers.Trainer: progress, checkpoints, and a save at one step on all ranks before a stop. Let the script return, or
    end with ddprun.stopped(), when train() has returned; `resume_from_checkpoint` takes up what was saved."""
    from transformers import TrainerCallback

    class Callback(TrainerCallback):
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
