"""Pictures of what the experiments found, drawn with matplotlib: values in, files out."""
