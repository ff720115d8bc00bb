"""The options of the scripts that train the transformer of unit model_parallel, in both tracks."""

from handson.training import method_runs, options


def add(methods):
    """Return a function for options.parse that adds this unit's options. methods: the names that --method accepts."""

    def add_to(parser):
        method_runs.add_options(parser, methods)
        whole = options.positive(int, 65536)
        parser.add_argument(
            "--width", type=whole, default=128, metavar="N", help="width: numbers per patch. Default: %(default)s"
        )
        parser.add_argument(
            "--heads", type=whole, default=4, metavar="N", help="number of attention heads. Default: %(default)s"
        )
        parser.add_argument(
            "--blocks",
            type=whole,
            default=4,
            metavar="N",
            help="number of blocks of attention and MLP. Default: %(default)s",
        )
        parser.add_argument(
            "--patch",
            type=whole,
            default=2,
            metavar="PIXELS",
            help="side length of a patch in pixels. Default: %(default)s",
        )
        parser.set_defaults(size=8, epoch=2, lr=0.001)

    return add_to


def add_pipeline(methods):
    """Return a function like that of `add`, which also adds the options of pipelines."""

    def add_to(parser):
        add(methods)(parser)
        parser.add_argument(
            "--micro-batches",
            type=options.positive(int, 1024),
            default=8,
            metavar="N",
            help="number of micro-batches per batch. Default: %(default)s",
        )

    return add_to


def add_mesh(methods):
    """Return a function like that of `add`, which also adds the options of a mesh, whose ranks draw their own random
    numbers."""

    def add_to(parser):
        add(methods)(parser)
        parser.add_argument(
            "--dropout",
            type=options.share,
            default=0.1,
            metavar="SHARE",
            help="share of units that dropout sets to 0, in each MLP and attention. Default: %(default)s",
        )

    return add_to


def problem(args):
    """Return what is wrong with the network that the options describe, as a sentence; or None."""
    if args.width % args.heads:
        return f"--width {args.width} cannot be divided among {args.heads} heads: take a multiple of --heads"
    if args.size % args.patch:
        return f"--size {args.size} cannot be split into patches of {args.patch} pixels: take a multiple of --patch"
    return None
