"""RNN, LSTM and GRU of ONNX, compiled: one matrix product for all inputs, and a loop over the steps."""
