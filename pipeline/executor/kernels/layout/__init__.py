"""One layout for a whole stage: channels last."""
