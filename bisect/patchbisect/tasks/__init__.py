"""The face: short tasks that parse, call and print. Heavy imports stand inside them, so that ``--help`` is fast."""

from invoke import Collection

from patchbisect.tasks import bisecting, boxes, launching, maintaining, project, queue, recorded

namespace = Collection(
    queue.queue,
    queue.apply_queue,
    launching.launch,
    launching.stop,
    launching.trial,
    launching.classify,
    launching.explain,
    recorded.runs,
    recorded.show,
    recorded.tag,
    recorded.gc,
    recorded.export_run,
    recorded.import_run,
    recorded.adopt,
    recorded.diff_runs,
    recorded.report,
    recorded.plot,
    recorded.watch,
    boxes.doctor,
    boxes.gpu_check,
    project.setup,
    project.demo,
    project.test,
    *maintaining.tasks(),
)
namespace.add_collection(bisecting.collection)
namespace.add_collection(boxes.collection)
namespace.configure({"run": {"in_stream": False}})
