"""The ladder: softmax from naive to fused, one idea a rung, every rung checked against float64 and then timed."""
