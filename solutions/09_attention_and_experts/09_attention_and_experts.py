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
# Today's language models grow in two ways: they read sequences of a million tokens, and they have layers of which each
# token uses only a small part. Neither fits on one GPU. In this notebook you split a sequence among ranks, and then the
# experts of a layer. Both must give the results of one process.
#
# **In about 100 minutes you will**
#
# - combine two parts of a softmax exactly, which is all that a split sequence needs,
# - write ring attention, and balance its work under a causal mask,
# - write the alternative, an all-to-all by heads, and compare the bytes and the memory of both with formulas,
# - send tokens to experts on other ranks and back, with gradients,
# - compute how many tokens a full expert drops, and how long all ranks wait for the fullest rank.
#
# New words are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/09_attention_and_experts"

# %%
from handson.cluster.follow import follow, submit
from handson.notebook import all_to_all, attention_and_experts, runs

SELECT = {
    ranks: f"{nodes}:ngpus={ranks // nodes}:mpiprocs={ranks // nodes}:ompthreads=1"
    for ranks, nodes in ((1, 1), (2, 1), (4, 2))
}


def run(script, name, options, ranks=2):
    """Run a script on 1, 2 or 4 ranks, and return its result folder, results/`name`."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options}
    follow(submit(FOLDER, "-l", f"select={SELECT[ranks]}", "-j", "oe", "run_script.sh", **variables))
    return f"{FOLDER}/results/{name}"


# %% [markdown]
# ## Two parts of a softmax
#
# A query compares itself with all keys, and averages their values with the weights of a softmax. If a rank sees only
# some of the keys, it has the average over these keys, and the sum of their exp(score). This is enough: the sums are
# the weights that turn two averages into the average over all keys. The sums themselves would overflow, so the code
# keeps their logarithms. (This is called *online softmax*: Milakov and Gimelshein, 2018.)
#
# Here is one query with six keys, and each value is one number. Compare the average over all keys with the averages
# over the two halves:

# %%
import torch

scores, values = torch.tensor([1.0, 3.0, 0.5, 2.0, 6.0, -1.0]), torch.arange(1.0, 7.0)
halves = [(scores[:3], values[:3]), (scores[3:], values[3:])]
means = [(part.softmax(0) * value).sum().item() for part, value in halves]
print(f"all keys: {(scores.softmax(0) * values).sum().item():.4f}; the halves: {means[0]:.4f}, {means[1]:.4f}")
print("their sums of exp(score):", [round(part.exp().sum().item(), 1) for part, _ in halves])

# %% [markdown]
# The second half has nearly all of the weight. Fill the gap `combine` in `pytorch/attention.py`. The function `attend`
# computes one such part, its average and the logarithm of its sum. This is its core:

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
# Each of N ranks has 1/N of the tokens: their queries, keys and values. The keys and values travel around a ring. While
# a rank sends a block on, it attends to this block (Liu, Zaharia and Abbeel, "Ring attention", 2023). No rank ever
# holds all keys.
#
# The alternative splits the heads. An *all-to-all* gives each rank all tokens of some heads. The rank computes the
# attention of these heads without further messages, and a second all-to-all sends the results back (Jacobs et al.,
# "DeepSpeed Ulysses", 2023).
#
# The scores are the largest tensor of an attention that stores them. (FlashAttention, Dao et al. 2022, does not: it
# computes the softmax block by block, and combines the blocks as you do above.) How many bytes do the scores need?


# %%
def score_bytes(way, tokens, heads, ranks):
    """Return the largest number of bytes of scores that a rank has at once, in float32.

    way: "one process", "ring" or "heads". tokens, heads: numbers of the whole attention.
    """
    ### BEGIN SOLUTION score_bytes:
    ### return the bytes. In a step of the ring, a rank has the scores of its queries and one block
    ### of keys, for all heads
    if way == "ring":
        return 4 * heads * (tokens / ranks) ** 2
    if way == "heads":
        return 4 * heads / ranks * tokens**2
    return 4 * heads * tokens**2
    ### END SOLUTION


# %% [markdown]
# How many bytes does a rank send? Each tensor has `tokens` x `width` numbers on all ranks together. `width` is the
# width of all heads together.


# %%
def sent_bytes(way, tokens, width, ranks):
    """Return the bytes that a rank sends in one attention in float32, forward only; `way` is "ring" or "heads"."""
    ### BEGIN SOLUTION sent_bytes:
    ### return the bytes. Ring: keys and values travel N - 1 times. Heads: query, key, value and
    ### result are exchanged, and 1/N of each tensor's part stays on its rank
    part = 4 * tokens / ranks * width
    if way == "ring":
        return 2 * (ranks - 1) * part
    return 4 * (ranks - 1) / ranks * part
    ### END SOLUTION


# %%
TOKENS, HEADS, WIDTH = 2048, 4, 32  # WIDTH: numbers per token and head
for ranks in (2, 4, 16, 64):
    shown = {
        way: f"{score_bytes(way, TOKENS, HEADS, ranks) / 2**20:.2f} MiB of scores, {sent_bytes(way, TOKENS, HEADS * WIDTH, ranks) / 2**20:.2f} MiB sent"
        for way in ("ring", "heads")
    }
    print(f"{ranks:2} ranks:", shown)

# %% [markdown]
# The ring needs less memory, but it sends N / 2 times as many bytes as the all-to-all by heads. However, its messages
# travel while the rank computes. The all-to-all by heads allows at most as many ranks as heads.

# %%
check("attention_and_experts", "score_bytes", "sent_bytes")

# %% [markdown]
# ## The imbalance of a causal mask
#
# A language model is *causal*: a token sees itself and the tokens before it. So the query at position p sees p + 1
# keys.


# %%
def keys_seen(places):
    """Return how many keys the queries at these positions see in total; positions in the sequence start at 0."""
    ### BEGIN SOLUTION keys_seen: return the number, for a causal mask
    return sum(place + 1 for place in places)
    ### END SOLUTION


# %% [markdown]
# If each rank has a contiguous stretch of the sequence, the last rank has the most work, and in each step of the ring
# all ranks wait for the slowest one. Instead, split the sequence into 2 N chunks, and give each rank two of them. Try
# it by hand first, with 16 tokens, 8 chunks and 4 ranks. Change `chunks` until all bars have the same length:

# %%
chunks = {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6, 7]}  # rank -> its two chunks: change this
attention_and_experts.work_of_ranks(chunks, keys_seen)

# %% [markdown]
# This distribution is called *zigzag*. Now fill the remaining gaps in `pytorch/attention.py`: `zigzag`, `ring_step`,
# `to_heads`.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" pytorch/*.py

# %%
check("attention_and_experts", "keys_seen", "attention.py")

# %% [markdown]
# The script compares each way with attention in one process. Then it measures the time of an attention and the
# computing time of each rank. Take two ranks and a causal mask. If each rank has a contiguous stretch, the slowest rank
# computes longer than with zigzag. How many times as long?

# %%
### BEGIN SOLUTION prediction_zigzag:
### write `prediction_zigzag = ` and your number. Think of the matrix of scores, divided into a grid
### of 2 x 2 squares by the ranks of queries and keys. Count the part of the squares that the
### slowest rank computes, in both ways
prediction_zigzag = 1.5 / 1
### END SOLUTION
print(f"I expect {prediction_zigzag:.2f} times as long.")

# %%
measured = attention_and_experts.read(run("attention.py", "two_ranks", f"--tokens {TOKENS}"))
attention_and_experts.ways(measured, score_bytes, sent_bytes)

# %%
slowest_rank = {row["way"]: max(row["computing"]) for row in measured["rows"] if row["causal"]}
faster = slowest_rank["ring"] / slowest_rank["zigzag"]
predicted = globals().get("prediction_zigzag")  # None if you skipped it
print(f"zigzag: predicted {predicted} times as fast; measured on the slowest rank: {faster:.2f} times")

# %% [markdown]
# By the scores alone, the stretch of the slowest rank takes 1.5 times as long. But each rank also sends, receives and
# combines partial results, which takes as long in both ways. So the measured factor is usually smaller.
#
# The scores take most of the memory, as the formula predicts. The rest is queries, keys, values and results, 2 to 4
# MiB here. The time includes waiting: for other ranks, and for a core if there are more ranks than cores. The next
# cell shows only the computing time, for each of four ranks on two nodes, with a causal mask:

# %%
of_four = attention_and_experts.read(run("attention.py", "four_ranks", f"--tokens {TOKENS}", ranks=4))
attention_and_experts.computing(of_four)

# %% [markdown]
# The script refuses a sequence that cannot be split evenly. In practice, such a sequence is padded.

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/attention.py --tokens 1001 2>&1 | head -1

# %% [markdown]
# Training sends about three times as many bytes: in backward, the keys and values go around the ring again, together
# with their gradients. On GPUs, PyTorch offers both ways in one context manager,
# `torch.distributed.tensor.experimental.context_parallel`, with zigzag for causal masks. It does not support CPUs.

# %%
check("attention_and_experts", "prediction_zigzag")

# %% [markdown]
# ## Experts
#
# A *mixture of experts* replaces one MLP by several MLPs, the *experts*. A *router*, which is one small layer, gives
# each token a probability for each expert, and the token goes to the expert with the highest probability. So a layer
# can have eight times as many parameters and still take no longer than a single MLP. (Many of today's models send each
# token to several experts, the *top k*, and add up their weighted results. Here k is 1.)
#
# An expert accepts only a limited number of tokens, its *capacity*. This fixes the size of the tensors, and no rank has
# to wait long for an overloaded expert. Tokens beyond the capacity are *dropped*: the block passes them on unchanged. A
# router tends to prefer the experts that have been trained most. Therefore a *balancing loss* is added to the loss. The
# balancing loss is 1, its smallest value, if all experts get the same number of tokens.
#
# Fill the gaps `within_capacity` and `balancing_loss` in `pytorch/experts.py`.

# %%
check("attention_and_experts", "within_capacity", "balancing_loss")

# %% [markdown]
# ## Experts on other ranks
#
# Each rank has its own images and its own experts. A token travels to the rank of its expert, and the result travels
# back. This takes two all-to-alls in forward and two in backward. The router decides how many tokens each rank sends to
# each other rank.
#
# Try it by hand first, with three ranks. Experts 0 and 1 are on rank 0, experts 2 and 3 on rank 1, experts 4 and 5 on
# rank 2. `experts` contains the expert of each token. Each rank sorts its tokens by expert. How many tokens does each
# rank send to each rank, including itself? How many does it receive from each? A square of the
# picture is a token with the number of its expert, and a thick frame marks a token on a wrong rank. Replace the zeros
# until the title reports no mistake:

# %%
experts = [[3, 0, 5, 2], [5, 5, 1, 4], [2, 0, 4, 1]]  # the expert of each token, of each rank
sends = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]  # sends[1][2]: tokens that rank 1 sends to rank 2
receives = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]  # receives[2][1]: tokens that rank 2 receives from rank 1
all_to_all.by_hand(experts, sends, receives)

# %% [markdown]
# `all_to_all_single` needs both lists: each rank passes its row of `sends` and its row of `receives`. Now fill the gaps
# `exchange_forward` and `exchange_backward` in `pytorch/experts.py`. The gradient of a token travels back to the rank
# of the token.

# %%
check("attention_and_experts", "experts.py")

# %% [markdown]
# No rank can finish the second all-to-all before the other ranks enter it. So all ranks wait for the rank whose experts
# got the most tokens.


# %%
def slowest(counts, ranks):
    """Return how many times as long the experts take as with equal numbers of tokens, because all ranks wait for the
    rank with the most tokens.

    counts: tokens of each expert. All ranks have the same number of experts, and rank 0 has the first ones.
    """
    ### BEGIN SOLUTION slowest:
    ### return the number. It is 1 if all ranks have the same number of tokens
    each = len(counts) // ranks
    of_ranks = [sum(counts[rank * each : (rank + 1) * each]) for rank in range(ranks)]
    return max(of_ranks) / (sum(counts) / ranks)
    ### END SOLUTION


# %%
print([round(slowest(counts, 2), 2) for counts in ([5, 5, 5, 5], [20, 0, 0, 0], [10, 0, 0, 10])])

# %% [markdown]
# The next job trains a small transformer twice on two ranks, without the balancing loss and with it. Each block has 8
# experts.

# %%
# Without the balancing loss, how many times as long will the experts take in the last step as with equal loads?
### BEGIN SOLUTION prediction_slowest:
### write `prediction_slowest = ` and your number, from 1 to 2
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
        f"{method:10} loss {result.log[-1]['main/loss']:.3f}; {result.throughput:.0f} images/s; without dropped tokens,"
        f" the experts of each block would take {', '.join(f'{one:.2f}' for one in times)} times as long in the last step"
    )
predicted = globals().get("prediction_slowest")  # None if you skipped it
print("predicted:", predicted)

# %% [markdown]
# With a capacity, no rank computes much longer than the others, because a full expert drops tokens. So with a
# capacity, imbalance costs tokens; without a capacity, it costs time. Therefore the images/s of the two runs say
# little: they differ by chance. A capacity
# of 0 would drop all tokens:

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
# - Combine partial results of a softmax, no matter which rank holds the keys.
# - Compare the memory and the bytes of both ways to split a sequence.
# - Balance the work of a causal mask.
# - Send tokens to experts on other ranks, and compute the cost of their imbalance.
#
# Continue with `10_challenge`.
