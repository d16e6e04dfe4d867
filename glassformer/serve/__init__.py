"""A server that existing clients can talk to: LibreTranslate's dialect and OpenAI's, over the one driver of decoding.

requests.py       how much of anything is taken, what a request says, routes with their schemas, and what they answer
jobs.py           what one request asks of a model, row by row (translation.py, completion.py)
worker.py         the one thread that owns a model and its drivers, and whose row is next
served_run.py     a run under its name, with its worker and its languages (corrections.py: answers that were corrected)
models.py         several runs: loaded on first use, unloaded under a limit, replaced by newer weights; a job's way and back
auth.py           hosts, origins and keys
middleware.py     who may ask, of what size and in what time, and the count of what became of each request
libretranslate.py, openai.py                      the dialects
pages.py, training.py                             the live page
server.py                                         all of it together, from start to SIGTERM
"""
