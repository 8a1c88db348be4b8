"""Our decoder: the layers of GPT-2 and of Llama's relatives over packed weights and a static KV cache."""
