"""The network that all tasks train: small enough for one core, with convolutions and normalisation like networks that
need clusters."""

from torch import nn

from handson.pytorch.resnet import resnet18, resnet50


def get_model(name, classes):
    """Return the network that `--model` calls "convnet", "resnet18" or "resnet50"."""
    return {"convnet": ConvNet, "resnet18": resnet18, "resnet50": resnet50}[name](classes)


def conv_block(inputs, outputs, kernel, stride):
    """Return convolution, batch normalisation and ReLU: (N, inputs, H, W) -> (N, outputs, H/stride, W/stride)."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class ConvNet(nn.Sequential):
    """Map images (N, 3, H, W), of any size, to class scores (N, classes)."""

    def __init__(self, classes=10):
        super().__init__(
            conv_block(3, 16, kernel=5, stride=4),
            conv_block(16, 32, kernel=3, stride=2),
            conv_block(32, 64, kernel=3, stride=2),
            conv_block(64, 64, kernel=3, stride=2),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(4 * 4 * 64, classes),
        )


class WideNet(nn.Sequential):
    """Map images (N, 3, H, W) to class scores (N, classes). One dense layer has most of the 136,000 parameters, so
    there is much to send for little computation."""

    def __init__(self, classes=10):
        super().__init__(
            conv_block(3, 8, kernel=5, stride=1),
            nn.MaxPool2d(2),
            conv_block(8, 16, kernel=5, stride=1),
            nn.AdaptiveMaxPool2d(8),
            nn.Flatten(),
            nn.Linear(8 * 8 * 16, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        )


class DeepNet(nn.Sequential):
    """Map images (N, 3, H, W) to class scores (N, classes), with 12 equal layers of 148 KB: their gradients fill
    buckets of many sizes."""

    def __init__(self, classes=10):
        inner = [conv_block(64, 64, kernel=3, stride=1) for _ in range(12)]
        first, last = conv_block(3, 64, kernel=5, stride=4), nn.Linear(64, classes)
        super().__init__(first, nn.MaxPool2d(2), *inner, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


class SmallNet(nn.Sequential):
    """Map images (N, channels, H, W) of pixels from 0 to 255 to class scores (N, classes). Without normalisation, the
    gradients of a batch are the sum of its images' gradients, for any number of workers."""

    def __init__(self, shape, classes=10):
        channels, height, width = shape
        super().__init__(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * -(-height // 2) * -(-width // 2), 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )

    def forward(self, pixels):
        return super().forward(pixels / 255)
