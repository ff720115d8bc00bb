"""Notes as long as what forward keeps for backward is held."""

import weakref

import torch


class Kept(torch.autograd.Function):
    """Kept.apply(tensor, tokens): the identity. Appends to the list `tokens` a weak reference to something that its
    graph saves for backward."""

    @staticmethod
    def forward(context, tensor, tokens):
        token = torch.zeros(1)
        context.save_for_backward(token)
        tokens.append(weakref.ref(token))
        return tensor.clone()

    @staticmethod
    def backward(context, gradient):
        context.saved_tensors
        return gradient, None
