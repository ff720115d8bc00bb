"""ResNet-18 and ResNet-50: the layers and initial weights of torchvision's networks of these names, with its option
zero_init_residual. torchvision is not used, because it must match the installed torch exactly.

Source: He et al., Deep Residual Learning for Image Recognition, 2015. As in torchvision, a bottleneck has its stride in
the 3 x 3 convolution.
"""

import torch.nn.functional as F
from torch import nn


def convolution(inputs, outputs, kernel, stride=1):
    """Return convolution and batch normalisation: (N, inputs, H, W) -> (N, outputs, H/stride, W/stride)."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """Apply ReLU to the sum of a branch of layers and its input. If their shapes differ, a 1 x 1 convolution maps the
    input to the branch's shape.

    At first the branch adds nothing, since the scale of its last normalisation starts at 0. Otherwise ResNet-50
    diverges in its first steps at the course's learning rate.
    """

    def __init__(self, inputs, outputs, stride, *branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)
        nn.init.zeros_(branch[-1][1].weight)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, images):
        return F.relu(self.branch(images) + self.shortcut(images))


def basic_block(inputs, width, stride):
    """Return the block of ResNet-18: two 3 x 3 convolutions."""
    branch = convolution(inputs, width, 3, stride), nn.ReLU(), convolution(width, width, 3)
    return Residual(inputs, width, stride, *branch)


def bottleneck(inputs, width, stride):
    """Return the block of ResNet-50: a 3 x 3 convolution between two of 1 x 1, with four times `width` outputs."""
    branch = convolution(inputs, width, 1), nn.ReLU(), convolution(width, width, 3, stride), nn.ReLU()
    return Residual(inputs, 4 * width, stride, *branch, convolution(width, 4 * width, 1))


class ResNet(nn.Sequential):
    """Map images (N, 3, H, W), H and W 32 or more, to class scores (N, classes).

    block: basic_block or bottleneck; expansion: the block's outputs, in multiples of its width; depths: the number of
    blocks of each of the four stages.
    """

    def __init__(self, block, expansion, depths, classes):
        stem, blocks, inputs = convolution(3, 64, 7, stride=2), [], 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for number in range(depth):
                blocks.append(block(inputs, width, stride=2 if stage and number == 0 else 1))
                inputs = expansion * width
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
        super().__init__(stem, nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1), *blocks, *pooled)


def resnet18(classes=10):
    """Return ResNet-18, which has 11.2 million parameters for ten classes."""
    return ResNet(basic_block, 1, (2, 2, 2, 2), classes)


def resnet50(classes=10):
    """Return ResNet-50, which has 23.5 million parameters for ten classes."""
    return ResNet(bottleneck, 4, (3, 4, 6, 3), classes)
