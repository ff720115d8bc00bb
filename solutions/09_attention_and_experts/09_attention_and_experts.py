# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Attention and experts on many ranks
#
# Two things let today's language models grow: sequences of a million tokens, and layers of which each token uses a small part. Neither
# fits one GPU. Here a sequence is cut among ranks, and so are the experts of a layer; both must give what one process gives.
#
# **In about 100 minutes you will**
#
# - put two parts of a softmax together exactly, which is all that a cut sequence needs,
# - write ring attention, and share its work evenly under a causal mask,
# - write the other way, an all-to-all by heads, and compare bytes and memory of both with formulas,
# - route tokens to experts on other ranks and back, with gradients,
# - say what a full expert drops, and what the fullest rank costs all others.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/09_attention_and_experts"

# %%
from handson.cluster.follow import follow, submit
from handson.notebook import attention_and_experts, runs

SELECT = {
    ranks: f"{nodes}:ngpus={ranks // nodes}:mpiprocs={ranks // nodes}:ompthreads=1"
    for ranks, nodes in ((1, 1), (2, 1), (4, 2))
}


def run(script, name, options, ranks=2):
    """Run a script on 1, 2 or 4 ranks, into results/`name`."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options}
    follow(submit(FOLDER, "-l", f"select={SELECT[ranks]}", "-j", "oe", "run_script.sh", **variables))
    return f"{FOLDER}/results/{name}"


# %% [markdown]
# ## Two parts of a softmax
#
# A query compares itself with all keys, and takes the mean of their values with the weights of a softmax. If a rank sees only some of the
# keys, it has a mean over those, and the sum of their exp(score). That is enough: with the sums, two means become the mean over all keys.
# The sums themselves would overflow, so their logarithms are kept. (It is called *online softmax*: Milakov and Gimelshein, 2018.)
#
# One query, six keys with one number each. Is the mean of both halves right?

# %%
import torch

scores, values = torch.tensor([1.0, 3.0, 0.5, 2.0, 6.0, -1.0]), torch.arange(1.0, 7.0)
halves = [(scores[:3], values[:3]), (scores[3:], values[3:])]
means = [(part.softmax(0) * value).sum().item() for part, value in halves]
print(f"of all keys: {(scores.softmax(0) * values).sum().item():.4f}; of the halves: {means[0]:.4f}, {means[1]:.4f}")
print("their sums of exp(score):", [round(part.exp().sum().item(), 1) for part, _ in halves])

# %% [markdown]
# The second half has nearly all of the weight. Fill the gap `combine` of `pytorch/attention.py`. `attend`, which gives the parts, is here:

# %%
import inspect

from handson.pytorch import attentions

print(inspect.getsource(attentions._attend))

# %%
# Save the file, then run this cell: it checks what you have written so far.
from grader import check

check("attention_and_experts", "combine")

# %% [markdown]
# ## A ring
#
# Each of N ranks has 1/N of the tokens: their queries, keys and values. Keys and values travel around a ring, and each rank attends to the block that it
# has while it sends it on (Liu, Zaharia and Abbeel, "Ring attention", 2023). No rank ever has all keys.
#
# The other way changes what is cut: by an *all-to-all*, each rank gets all tokens of some heads, computes those as if it were alone, and a
# second all-to-all goes back (Jacobs et al., "DeepSpeed Ulysses", 2023).
#
# What do the scores need, the largest tensor of an attention that keeps them?


# %%
def score_bytes(way, tokens, heads, ranks):
    """The most bytes of scores that a rank has at once, in float32; `way` is "one process", "ring" or "heads".

    tokens, heads: of the whole attention.
    """
    ### BEGIN SOLUTION score_bytes:
    ### return the bytes; in a step of the ring, a rank has scores of its queries and one block of
    ### keys, for all heads
    if way == "ring":
        return 4 * heads * (tokens / ranks) ** 2
    if way == "heads":
        return 4 * heads / ranks * tokens**2
    return 4 * heads * tokens**2
    ### END SOLUTION


# %% [markdown]
# And what does a rank send? Each tensor has `tokens` x `width` numbers on all ranks together; `width` is that of all heads.


# %%
def sent_bytes(way, tokens, width, ranks):
    """Bytes that a rank sends in one attention in float32, forward only; `way` is "ring" or "heads"."""
    ### BEGIN SOLUTION sent_bytes:
    ### return the bytes; ring: keys and values travel N - 1 times; heads: query, key, value and the
    ### result are exchanged, and 1/N of a rank's part stays
    part = 4 * tokens / ranks * width
    if way == "ring":
        return 2 * (ranks - 1) * part
    return 4 * (ranks - 1) / ranks * part
    ### END SOLUTION


# %%
TOKENS, HEADS, WIDTH = 2048, 4, 32  # WIDTH: of a head
for ranks in (2, 4, 16, 64):
    shown = {
        way: f"{score_bytes(way, TOKENS, HEADS, ranks) / 2**20:.2f} MB of scores, {sent_bytes(way, TOKENS, HEADS * WIDTH, ranks) / 2**20:.2f} MB sent"
        for way in ("ring", "heads")
    }
    print(f"{ranks:2} ranks:", shown)

# %% [markdown]
# The ring needs less memory and sends more, N / 2 times as much; but its messages travel while the rank computes. By heads there can be no more ranks
# than heads.

# %%
check("attention_and_experts", "score_bytes", "sent_bytes")

# %% [markdown]
# ## The mask brings an imbalance
#
# A language model is *causal*: a token sees itself and the tokens before it. So the query at place p sees p + 1 keys.


# %%
def keys_seen(places):
    """How many keys the queries at these places of the whole sequence see, all together; places are numbered from 0."""
    ### BEGIN SOLUTION keys_seen: return the number, for a causal mask
    return sum(place + 1 for place in places)
    ### END SOLUTION


# %% [markdown]
# If each rank has a stretch of the sequence, the last rank has most to do, and in each step of the ring all wait for the slowest. Cut the sequence
# into 2 N chunks, and give each rank two. Try it by hand first: 16 tokens, 8 chunks, 4 ranks. Change `chunks` until all bars are equally long:

# %%
chunks = {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6, 7]}  # rank -> its two chunks: change it
attention_and_experts.work_of_ranks(chunks, keys_seen)

# %% [markdown]
# That is what is called *zigzag*. Now fill the other gaps of `pytorch/attention.py`: `zigzag`, `ring_step`, `to_heads`.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" pytorch/*.py

# %%
check("attention_and_experts", "keys_seen", "attention.py")

# %% [markdown]
# The script compares each way with attention in one process, then measures it: the time of an attention, and for how long each rank's processor works.
# With two ranks and a causal mask: how many times as long as with zigzag does the slowest rank work, if each has a stretch?

# %%
### BEGIN SOLUTION prediction_zigzag:
### write `prediction_zigzag = ` and your number. The last of two ranks computes two squares with
### stretches; with zigzag, five of the quarters that such a square has
prediction_zigzag = 2 / 1.25
### END SOLUTION
print(f"I expect {prediction_zigzag:.2f} times as long.")

# %%
measured = attention_and_experts.read(run("attention.py", "two_ranks", f"--tokens {TOKENS}"))
attention_and_experts.ways(measured, score_bytes, sent_bytes)

# %%
slowest_rank = {row["way"]: max(row["computing"]) for row in measured["rows"] if row["causal"]}
faster = slowest_rank["ring"] / slowest_rank["zigzag"]
print(f"zigzag: predicted {prediction_zigzag:.2f} times as fast; the slowest rank's computing: {faster:.2f} times")

# %% [markdown]
# The ways differ in memory as the formulas say. The time contains waiting: for other ranks, and for a core if there are fewer of them than ranks. For
# how long does each of four ranks, on two nodes, work itself, with a causal mask?

# %%
of_four = attention_and_experts.read(run("attention.py", "four_ranks", f"--tokens {TOKENS}", ranks=4))
attention_and_experts.computing(of_four)

# %% [markdown]
# A sequence that cannot be cut evenly is refused, as everywhere: it is padded.

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/attention.py --tokens 1001 2>&1 | head -1

# %% [markdown]
# Training sends twice more: in backward, keys and values go around again, and their gradients with them. On GPUs, PyTorch has both ways behind one
# context, `torch.distributed.tensor.experimental.context_parallel`, with zigzag for causal masks; it has none for CPUs.

# %%
check("attention_and_experts", "prediction_zigzag")

# %% [markdown]
# ## Experts
#
# A *mixture of experts* has, in place of one MLP, several of them: the *experts*. A *router*, one small layer, gives each token a probability for each expert,
# and the token goes to the best one. So a layer can have eight times the parameters, and compute as long as one MLP.
#
# An expert takes a limited number of tokens, its *capacity*: tensors need a size, and nobody should wait for one expert. Tokens beyond it are *dropped*: the
# block passes them on as they are. And since a router likes what has been trained most, a *balancing loss* is added. It is 1 if all experts get equally
# many tokens.
#
# Fill `within_capacity` and `balancing_loss` of `pytorch/experts.py`.

# %%
check("attention_and_experts", "within_capacity", "balancing_loss")

# %% [markdown]
# ## Experts on other ranks
#
# Each rank has images of its own, and experts of its own. A token travels to the rank of its expert, and what the expert made of it comes back: two
# all-to-alls in forward and two in backward, and each rank sends as many tokens to each other rank as the router happened to choose.
#
# By hand, for two ranks with one expert each: rank 0 sends `[1, 3]` tokens (one stays, three go to rank 1), rank 1 sends `[2, 2]`. What does each rank
# receive from rank 0 and from rank 1? Now fill `exchange_forward` and `exchange_backward`. The gradient of a token takes the way back.

# %%
check("attention_and_experts", "experts.py")

# %% [markdown]
# All ranks meet in the all-to-all that goes back, so all wait for the rank whose experts got most tokens.


# %%
def slowest(counts, ranks):
    """How many times as long as with equal numbers of tokens the experts take, since all ranks wait for the fullest one.

    counts: tokens of each expert; the experts are divided evenly among the ranks, the first ones belong to rank 0.
    """
    ### BEGIN SOLUTION slowest: return the number: 1 if all ranks have equally many tokens
    each = len(counts) // ranks
    of_ranks = [sum(counts[rank * each : (rank + 1) * each]) for rank in range(ranks)]
    return max(of_ranks) / (sum(counts) / ranks)
    ### END SOLUTION


# %%
print([round(slowest(counts, 2), 2) for counts in ([5, 5, 5, 5], [20, 0, 0, 0], [10, 0, 0, 10])])

# %% [markdown]
# Two trainings of a small transformer with 8 experts in each block, on two ranks: without the balancing loss and with it.

# %%
# Without the balancing loss, how many times as long will the experts take in the last step?
### BEGIN SOLUTION prediction_slowest: write `prediction_slowest = ` and your number, from 1 to 2
prediction_slowest = 1.4
### END SOLUTION
print(f"I expect {prediction_slowest} times.")

# %%
folder = run("train_experts.py", "experts", "--method all --epoch 3 --blocks 2 --width 64 --capacity-factor 1.25")
attention_and_experts.experts(folder)

# %%
for method, [result] in runs.of_methods(folder).items():
    load = attention_and_experts.load(folder, method)
    times = [slowest(counts, load["ranks"]) for counts in load["counts"][-1]]
    print(
        f"{method:10} loss {result.log[-1]['main/loss']:.3f}; {result.throughput:.0f} images/s; in the last step each block's experts"
        f" would take {', '.join(f'{one:.2f}' for one in times)} times as long, if none dropped a token"
    )
print(f"predicted: {prediction_slowest}")

# %% [markdown]
# With a capacity, no rank computes much longer than others: what the fullest expert cannot take is dropped instead. So an imbalance costs time without a
# capacity, and tokens with one. A capacity of 0 would drop all:

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/train_experts.py --epoch 1 --batchsize 1 --patch 8 --capacity-factor 1 -o results/none 2>&1 | tail -1

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("attention_and_experts")

# %% [markdown]
# ## What you can do now
#
# - Put partial results of a softmax together, wherever its keys are.
# - Say which way of cutting a sequence needs which memory and which bytes.
# - Divide the work of a causal mask evenly.
# - Send tokens to experts on other ranks, and say what their imbalance costs.
