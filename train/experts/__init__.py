"""AdMIRe's experts: what is trained beside a text encoder, with or without CLIP."""
