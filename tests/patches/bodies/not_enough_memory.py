"""What the explanation says for budgets of all kinds. Prints one JSON list of {"inputs", "text"}."""

import itertools
import json

from sglang.srt.model_executor.model_runner_kv_cache_mixin import explain_not_enough_memory

GRID = itertools.product(
    (95.0, 22.157), (0.05, 0.3, 0.97, 1.0), (0.02, 0.5, 0.88), (256, 70272), (1, 64), (False, True)
)


def explained(total, loaded, fraction, cell_size, page_size, is_hybrid, max_total_tokens=None):
    inputs = {
        "available": total * (1 - loaded),
        "total": total,
        "fraction": fraction,
        "cell_size": cell_size,
        "page_size": page_size,
        "max_total_tokens": max_total_tokens,
        "is_hybrid": is_hybrid,
    }
    return {"inputs": inputs, "text": explain_not_enough_memory(**inputs)}


def main():
    seen = [explained(*case) for case in GRID]
    seen.append(explained(0.0, 0.0, 0.5, 256, 1, False))
    seen.append(explained(22.0, 0.0, 0.5, 256, 64, False, max_total_tokens=32))
    print(json.dumps(seen))


main()
