"""RNN, LSTM and GRU compiled: one input product, a loop of steps."""
