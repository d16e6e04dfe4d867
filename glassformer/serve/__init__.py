"""A server that existing clients can talk to: LibreTranslate's dialect and OpenAI's, over the one driver of decoding.

limits.py        how much of anything is taken
api_errors.py    an answer that is an error, in either dialect
jobs.py          what one request asks of a model, row by row (translation.py, completion.py)
fair_queue.py    whose row is next
worker.py        the one thread that owns a model and its drivers
worker_group.py  the same on several devices
models.py        several runs: loaded on first use, unloaded under a limit, replaced by newer weights
service.py       from a request to a job, and its answer back
children.py      a program in a process of its own, for what strangers send (translated_files.py)
auth.py          hosts, origins and keys
middleware.py    who may ask, of what size and in what time, and the count of what became of each request (metrics.py)
libretranslate.py, openai.py, pages.py     the dialects and the page
app.py, connections.py, lifecycle.py       all of it together, from start to SIGTERM
"""
