"""Stands in for SGLang's kernel package where there is no GPU: no operator is registered, SGLang takes torch's."""
