"""Silent errors of training, planted in a copy of the code one at a time: does an invariant name each?

    python -m tools.planted [--only name …] [--honest]

Each is a small change after which a run ends well, but has learned the wrong thing or nothing. It is made in
a copy of the packages, which a real run of five steps on the sample then uses; an error is found if the run
ends with the name of one of the invariants that should find it.

Sources: TrainCheck's reproduced errors (arXiv 2506.14813) as far as they apply here, threads of comparable
frameworks, and slips that were made while this project was written.
"""

from __future__ import annotations

from typing import NamedTuple

STEP, LOOP, EMBED, OPTIMIZER = (
    f"idiomtune/training/{name}.py" for name in ("step", "loop", "embedder", "optimizer")
)
FORWARD, READING, ENCODER = (f"idiomtune/encoder/{n}.py" for n in ("forward", "reading", "encoder"))
PARALLEL, SUITE = "idiomtune/encoder/parallel.py", "idiomtune/benchmarks/suite.py"
PROCESSES, RETAIN = "idiomtune/io/processes.py", "idiomtune/training/regularization.py"
CONTRAST, STEPS = "idiomtune/objectives/contrastive.py", "idiomtune/objectives/steps.py"
TRIPLETS, INFONCE = "idiomtune/objectives/triplets.py", "idiomloss/infonce.py"


class Planted(NamedTuple):
    """A change of the code, and the invariants of which one should name it.

    Attributes:
        name: what is wrong.
        file, old, new: where, and what is replaced; `old` occurs once.
        found_by: names of invariants; empty: none is there for it.
        run: a key of :data:`RUNS`.
    """

    name: str
    file: str
    old: str
    new: str
    found_by: tuple[str, ...]
    run: str = "plain"


# Options beside those of every run; two = two processes, resumed = stopped after step 2 and resumed.
RUNS: dict[str, list[str]] = {
    "plain": [],
    "two": [],
    "resumed": [],
    "shuffled": ["objective.tuples=drawn", "objective.pairs_every=0", "objective.redraw=true"],
    "caching": ["trainer.gradient_caching=true", "model.tokens_per_forward=512"],
    "parts": ["trainer.accumulation=2", "trainer.batch_size=24"],
    "clipped": ["trainer.clip_norm=0.05"],
    "lora": ["retain.lora.rank=4"],
    "interpolated": ["retain.interpolation=0.5"],
    "prompts": ["model.query_prompt='query: '"],
    "spans": ["objective.query_mode=span"],
    "decayed": ["trainer.weight_decay=0.5", "trainer.warmup_steps=0"],
    "matryoshka": ["trainer.matryoshka=[16]"],
    "distilled": ["retain.distillation=1.0"],
    "tokens": ["model.idiom_tokens=train", "trainer.idiom_tokens_learning_rate=5e-3"],
    "glossary": ["model.glossary=[idiolink]", "model.glossary_form=beside", "model.glossary_dropout=0.25"],
    "joint": [],
    "triplets": [],
    "tied": [],
}

_UPDATE = "    training.optimizer.step()\n    training.invariants.after_update()\n"
_BACKWARD = "            self.accelerator.backward(loss)\n"

ERRORS = [
    # ---- the optimizer and the weights
    Planted(
        "the optimizer was built before parameters were replaced",
        OPTIMIZER,
        "    pretrained = [p for module in (encoder, *parts) for p in module.parameters()]\n",
        "    pretrained = [p for module in (encoder, *parts) for p in module.parameters()]\n"
        "    pretrained = [nn.Parameter(p.detach().clone()) for p in pretrained]\n",
        ("optimizer",),
    ),
    Planted(
        "the optimizer was built before LoRA was applied",
        OPTIMIZER,
        "        trained = [p for p in parameters if p.requires_grad]\n",
        "        names = {id(p): n for n, p in encoder.named_parameters()}\n"
        "        trained = [p for p in parameters if p.requires_grad]\n"
        "        trained = [p for p in trained if 'lora_B' not in names.get(id(p), '')]\n",
        ("optimizer",),
        "lora",
    ),
    Planted(
        "the optimizer lacks the last parameters",
        OPTIMIZER,
        "    ids = {id(p) for p in pretrained}\n",
        "    pretrained = pretrained[:-3]\n    ids = {id(p) for p in encoder.parameters()}\n",
        ("optimizer",),
    ),
    Planted(
        "gradients are never set to zero",
        STEP,
        "    training.optimizer.zero_grad(set_to_none=True)\n\n    state.step += 1",
        "    state.step += 1",
        ("zeroed",),
    ),
    Planted(
        "only every second step is taken",
        STEP,
        _UPDATE,
        _UPDATE.replace("    training.optimizer.step()", "    state.step % 2 or training.optimizer.step()"),
        ("optimizer", "still"),
    ),
    Planted(
        "weight decay goes into the gradient (Adam in place of AdamW)",
        OPTIMIZER,
        "    optimizer = torch.optim.AdamW(\n",
        "    optimizer = torch.optim.Adam(\n",
        ("optimizer", "still"),
        "decayed",
    ),
    Planted(
        "weights are clamped after each step",
        STEP,
        _UPDATE,
        _UPDATE + "    [p.data.clamp_(-0.02, 0.02) for p in training.encoder.parameters()]\n",
        ("optimizer", "still"),
    ),
    Planted(
        "weights are rounded to bfloat16 after each step",
        STEP,
        _UPDATE,
        _UPDATE.replace(
            "    training.invariants",
            "    [p.data.copy_(p.data.bfloat16()) for p in training.encoder.parameters()]\n"
            "    training.invariants",
        ),
        (),
    ),
    Planted(
        "master weights are bfloat16",
        STEP,
        "        encoder, trainer, processes = self.encoder, self.trainer, self.processes\n",
        "        encoder, trainer, processes = self.encoder, self.trainer, self.processes\n"
        "        encoder.model.bfloat16()\n",
        ("precision",),
    ),
    Planted(
        "frozen weights are changed by a step",
        STEP,
        _UPDATE,
        _UPDATE.replace(
            "    training.invariants",
            "    [p.data.mul_(0.999) for p in training.encoder.parameters() if not p.requires_grad]\n"
            "    training.invariants",
        ),
        ("frozen",),
        "lora",
    ),
    Planted(
        "a tied weight is replaced by a copy",
        STEP,
        "        encoder, trainer, processes = self.encoder, self.trainer, self.processes\n",
        "        encoder, trainer, processes = self.encoder, self.trainer, self.processes\n"
        "        shared = encoder.transformer.encoder.embed_tokens\n"
        "        shared.weight = nn.Parameter(shared.weight.detach().clone())\n",
        (),
        "tied",
    ),
    Planted(
        "each parameter's gradient is clipped by itself",
        STEP,
        "        norm = float(self.accelerator.clip_grad_norm_(parameters, max_norm))\n",
        "        norm = sum(float(p.grad.norm()) ** 2 for p in parameters if p.grad is not None) ** 0.5\n"
        "        [torch.nn.utils.clip_grad_norm_([p], max_norm) for p in parameters]\n",
        ("gradient",),
        "clipped",
    ),
    # ---- the schedule
    Planted(
        "the scheduler steps twice",
        STEP,
        "    factor = schedule(trainer, state.step, training.num_steps)\n",
        "    factor = schedule(trainer, 2 * state.step, training.num_steps)\n",
        ("schedule",),
    ),
    Planted(
        "the schedule begins again when the run is resumed",
        STEP,
        "    factor = schedule(trainer, state.step, training.num_steps)\n",
        "    factor = schedule(trainer, state.num_losses, training.num_steps)\n",
        ("schedule",),
        "resumed",
    ),
    Planted(
        "the scheduler never steps",
        STEP,
        '        group["lr"] = trainer.learning_rate * factor * group["lr_scale"]\n',
        '        group["lr"] = group["lr"]\n',
        ("schedule",),
    ),
    # ---- modes and dropout
    Planted(
        "training without dropout",
        STEP,
        "    training.encoder.train(training.dropout)\n",
        "    training.encoder.eval()\n",
        ("modes",),
    ),
    Planted(
        "an evaluation leaves the model in evaluation mode",
        STEP,
        "    training.encoder.train(training.dropout)\n",
        "    state.step or training.encoder.train()\n    state.scored_step and training.encoder.eval()\n",
        ("modes",),
    ),
    Planted(
        "scoring with dropout",
        SUITE,
        "        with evaluation_mode(encoder):\n",
        "        with evaluation_mode(encoder):\n            encoder.train()\n",
        ("scoring",),
    ),
    Planted(
        "an evaluation that trains",
        SUITE,
        "        return replace(card, seconds",
        "        [p.data.mul_(1.0001) for p in encoder.parameters()]\n        return replace(card, seconds",
        ("scoring", "still"),
    ),
    Planted(
        "dropout draws the same masks in all steps",
        EMBED,
        "            seed_everything(self.seed, step, micro, 1 + batch)\n",
        "            seed_everything(self.seed, 1 + batch)\n",
        (),
    ),
    Planted(
        "dropout draws from a generator that is not seeded",
        EMBED,
        "            seed_everything(self.seed, step, micro, 1 + batch)\n",
        "            pass\n",
        ("gradient",),
    ),
    # ---- from embeddings to gradients
    Planted(
        "gradient caching replays other dropout (sentence-transformers#3862)",
        EMBED,
        "self._parallel.run(batches, [number], seed)[0] if self.caching",
        "self._parallel.run(batches, [number])[0] if self.caching",
        ("gradient",),
        "caching",
    ),
    Planted(
        "gradient caching leaves out all batches but one",
        EMBED,
        "            for position, number in enumerate(of_rank):\n",
        "            for position, number in [*enumerate(of_rank)][:1]:\n",
        ("gradient",),
        "caching",
    ),
    Planted(
        "a step in parts adds up the losses of its parts",
        STEP,
        "    embedded.backward(result.loss * weight)\n",
        "    embedded.backward(result.loss)\n",
        ("loss", "gradient"),
        "parts",
    ),
    Planted(
        "only the last part of a step counts",
        STEP,
        "    embedded.backward(result.loss * weight)\n",
        "    training.optimizer.zero_grad(set_to_none=True)\n    embedded.backward(result.loss * weight)\n",
        (),
        "parts",
    ),
    Planted(
        "the pooled tokens are detached",
        FORWARD,
        '    pooled: Tensor = pooling(features)["sentence_embedding"]  # (B, D\')\n',
        '    features = dict(features, token_embeddings=features["token_embeddings"].detach())\n'
        '    pooled = pooling(features)["sentence_embedding"]\n'
        "    pooled.requires_grad_(torch.is_grad_enabled())\n",
        ("gradient",),
    ),
    Planted(
        "embeddings of an earlier step come from a cache",
        ENCODER,
        "        return self._embed_batch(batch)\n\n    @torch.no_grad()\n    def usage_features",
        "        if not self.training:\n            return self._embed_batch(batch)\n"
        "        kept = self.__dict__.setdefault('_kept', {})\n"
        "        key = tuple(map(tuple, batch.texts))\n"
        "        if key not in kept:\n            kept[key] = self._embed_batch(batch).detach()\n"
        "        return kept[key].clone().requires_grad_(torch.is_grad_enabled())\n\n"
        "    @torch.no_grad()\n    def usage_features",
        ("gradient",),
    ),
    # ---- the loss
    Planted(
        "positives are detached",
        CONTRAST,
        "        documents_by_mode = embeddings[first:].chunk(",
        "        documents_by_mode = embeddings[first:].detach().chunk(",
        ("pulls",),
    ),
    Planted(
        "anchors are detached",
        CONTRAST,
        "        queries_by_mode = embeddings[:first].chunk(",
        "        queries_by_mode = embeddings[:first].detach().chunk(",
        ("pulls",),
    ),
    Planted(
        "the loss has the wrong sign",
        INFONCE,
        "            return terms.sum() / valid.sum().clamp(min=1)\n",
        "            return -terms.sum() / valid.sum().clamp(min=1)\n",
        ("pulls",),
    ),
    Planted(
        "the mined triplets' loss has the wrong sign",
        TRIPLETS,
        "        return ObjectiveLoss(result.loss, counts, is_empty=result.is_empty)\n",
        "        return ObjectiveLoss(-result.loss, counts, is_empty=result.is_empty)\n",
        ("pulls",),
        "triplets",
    ),
    Planted(
        "the loss that is reported is another than the one that is trained",
        CONTRAST,
        '        counts = {"false_negatives": float(masks.num_false_negatives)}\n',
        "        self._calls = getattr(self, '_calls', 0) + 1\n"
        "        loss = loss * (1 + 0.1 * (self._calls % 2))\n"
        '        counts = {"false_negatives": float(masks.num_false_negatives)}\n',
        ("loss",),
    ),
    # ---- labels and negatives
    Planted(
        "texts of the anchor's own meaning are negatives",
        INFONCE,
        '    if false_negatives != "keep":\n        negative = negative & ~false\n',
        "",
        ("labels",),
    ),
    Planted(
        "labels are shifted by a row (sentence-transformers#3453)",
        CONTRAST,
        "            anchor_labels=self._labels[records],\n",
        "            anchor_labels=self._labels[records].roll(1, 0),\n",
        ("labels", "pulls"),
    ),
    Planted(
        "candidates are owned by the next anchor",
        CONTRAST,
        "            torch.tensor([owner for _, owner, _ in drawn]),\n",
        "            torch.tensor([(owner + 1) % len(records) for _, owner, _ in drawn]),\n",
        ("labels", "pulls"),
        "shuffled",
    ),
    # ---- rows
    Planted(
        "rows are in the order of the forward batches",
        FORWARD,
        "    return rows[position.to(rows.device)]  # (R, D)\n",
        "    return rows\n",
        ("rows", "pulls", "parity"),
    ),
    Planted(
        "padding is pooled (sentence-transformers#3208)",
        FORWARD,
        '    pooled: Tensor = pooling(features)["sentence_embedding"]  # (B, D\')\n',
        '    mask = torch.ones_like(features["attention_mask"])\n'
        '    pooled: Tensor = pooling(dict(features, attention_mask=mask))["sentence_embedding"]\n',
        ("rows",),
    ),
    Planted(
        "padding is attended to",
        READING,
        '        features = {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64)}\n',
        '        features = {"input_ids": input_ids, "attention_mask": np.ones_like(input_ids)}\n',
        ("rows",),
    ),
    Planted(
        "embeddings depend on the batch's mean",
        ENCODER,
        "        return self._embed_batch(batch)\n\n    @torch.no_grad()\n    def usage_features",
        "        rows = self._embed_batch(batch)\n        return rows - 0.5 * rows.mean(0)\n\n"
        "    @torch.no_grad()\n    def usage_features",
        ("rows", "parity"),
    ),
    Planted(
        "texts are cut at eight tokens",
        READING,
        "                max_length=limit if is_limited else None,\n",
        "                max_length=8 if is_limited else None,\n",
        ("parity",),
    ),
    Planted(
        "texts are read without [CLS] and [SEP]",
        READING,
        "                return_attention_mask=False,\n",
        "                return_attention_mask=False,\n                add_special_tokens=False,\n",
        ("parity",),
    ),
    Planted(
        "a span takes in the token after it",
        FORWARD,
        "        weights[s, span.positions] = 1.0 / len(span.positions)\n    weights = weights.to",
        "        more = [*span.positions, span.positions[-1] + 1]\n"
        "        weights[s, more] = 1.0 / len(more)\n    weights = weights.to",
        ("parity",),
        "spans",
    ),
    Planted(
        "the prompt is lost when the model is saved",
        ENCODER,
        "{**self.model.prompts, **asdict(self.prompts)}",
        '{**self.model.prompts, **asdict(self.prompts), "query": ""}',
        ("parity",),
        "prompts",
    ),
    Planted(
        "other weights are saved than were trained",
        RETAIN,
        "        with self.exported_weights():\n            self.encoder.save(folder)\n",
        "        now = {n: p.detach().clone() for n, p in self.encoder.named_parameters()}\n"
        "        [p.data.mul_(1.5) for n, p in self.encoder.named_parameters() if 'LayerNorm' in n]\n"
        "        self.encoder.save(folder)\n"
        "        [p.data.copy_(now[n]) for n, p in self.encoder.named_parameters()]\n",
        ("parity",),
    ),
    Planted(
        "the weights that were scored stay in place of the trained ones",
        RETAIN,
        "                local_shard(p).copy_(trained)  # a copy: undoing the sum would round\n",
        "                pass\n",
        ("scoring", "still"),
        "interpolated",
    ),
    # ---- the plan
    Planted(
        "anchors are drawn with replacement",
        STEPS,
        "    order = rng.permutation(anchors).tolist()\n    return [order[i : i + size]",
        "    order = rng.choice(anchors, len(anchors)).tolist()\n    return [order[i : i + size]",
        ("plan",),
        "shuffled",
    ),
    Planted(
        "the order comes from a generator that is not seeded",
        CONTRAST,
        "        rng = np.random.default_rng([self.seed, epoch, 0])\n",
        "        rng = np.random.default_rng()\n",
        ("plan",),
    ),
    Planted(
        "a batch's texts come from a generator with a state",
        CONTRAST,
        "        # Each candidate's record, the anchor",
        "        import random\n        anchors = random.sample(list(anchors), len(anchors))\n"
        "        records = self._anchors[list(anchors)].tolist()\n"
        "        # Each candidate's record, the anchor",
        ("plan",),
    ),
    Planted(
        "a resumed run draws another order",
        CONTRAST,
        "        rng = np.random.default_rng([self.seed, epoch, 0])\n",
        "        import os\n        rng = np.random.default_rng([self.seed, epoch, os.getpid()])\n",
        ("resumed",),
        "resumed",
    ),
    Planted(
        "a resumed run begins its epoch again",
        LOOP,
        "        for step in steps[state.step_in_epoch : state.step_in_epoch + total - state.step]:\n",
        "        for step in steps[: total - state.step]:\n",
        ("plan",),
        "resumed",
    ),
    Planted(
        "the optimizer's moments are not restored",
        STEP,
        "        restore_optimizer(self.optimizer, load_file(checkpoint / OPTIMIZER))\n",
        "",
        ("resumed",),
        "resumed",
    ),
    Planted(
        "a resumed run trains the untrained model (sentence-transformers#3402)",
        "idiomtune/programs/train.py",
        "objective, checkpoint, expressions, processes, untrained=untrained\n",
        "objective, None, expressions, processes, untrained=untrained\n",
        ("resumed",),
        "resumed",
    ),
    # ---- processes
    Planted(
        "the gathered rows are in another order than the labels",
        PARALLEL,
        "            for numbers in partition.numbers\n        ]\n        order =",
        "            for numbers in partition.numbers[:: -1]\n        ]\n        order =",
        ("rows", "pulls", "gradient"),
        "two",
    ),
    Planted(
        "each process keeps the gradient of its own texts",
        STEP,
        "        self.processes.sum_gradients(self.encoder.parameters())\n",
        "",
        ("gradient", "processes"),
        "two",
    ),
    Planted(
        "gradients are averaged over processes that have a part each",
        STEP,
        "        self.processes.sum_gradients(self.encoder.parameters())\n",
        "        self.processes.sum_gradients(self.encoder.parameters(), divide=True)\n",
        ("gradient",),
        "two",
    ),
    Planted(
        "each process draws its own order",
        CONTRAST,
        "        rng = np.random.default_rng([self.seed, epoch, 0])\n",
        "        import os\n"
        "        rng = np.random.default_rng([self.seed, epoch, int(os.environ.get('RANK', 0))])\n",
        ("processes", "rows", "gradient", "pulls"),
        "two",
    ),
    Planted(
        "processes start with other weights",
        PROCESSES,
        "                tensor.data.copy_(broadcast(tensor.data.clone()))\n",
        "                tensor.is_floating_point() and tensor.data.mul_(1 + 0.01 * self.rank)\n",
        ("processes", "rows"),
        "two",
    ),
]
