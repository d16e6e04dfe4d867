"""What attention is compared with: recurrent, convolutional and linear layers (Table 1 of the paper, and its children)."""
