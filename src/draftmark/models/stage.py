"""A stage: optional embedding, `layers[a:b]` under their global numbers, optional norm and head.

How the runtime uses the model side (one rank, everything under `torch.inference_mode()`):

    description = models.config.describe(model_dir)      # ModelFacts + family + translated config
    backends = kernels.backends.choose("cpu", dtype=torch.bfloat16)       # op name -> backend
    stage = models.stage.build(
        description, dtype=dtype, device=device, max_context=n, backends=backends
    )                                                     # allocates parameters, uninitialised
    models.checkpoint.load(stage, model_dir, progress=lambda done, total: ...)   # bytes
    stage.finish()                                        # packs weights; load is over
    stage.cache_specs(kv_dtype)    # list[cache.spec.AttentionSpec], one a layer, in layer order
    stage.weight_bytes()           # bytes held after finish()
    stage.workspace_bytes(tokens=, logits_rows=, context=)  # upper bound of a step's temporaries

    out = stage.forward(ids, batch, pools)                # ids int64 [N], or hidden [N, hidden]
    out.hidden                     # [N, hidden] in `dtype`; after the final norm on the last stage
    out.bad_layer                  # [N] int32: first layer (global number) whose output had a
                                   # non-finite value in this token's row, -1 for none
    logits = stage.logits(out.hidden[rows])               # [M, vocab] in `dtype`

`pools` is one `(k_pool, v_pool)` a layer of this stage, in layer order, each
[num_pages, page_tokens, kv_heads, head_dim]; they may hold anything, NaN included, where nothing
was stored. The forward writes this step's keys and values to `batch.store` before it attends.
Nothing is kept between calls but parameters. A row's result does not depend on the other rows of
the batch beyond rounding.
"""
