"""A server that existing clients can talk to: LibreTranslate's dialect and OpenAI's, over the one driver of decoding.

requests.py      how much of anything is taken, what a request says, and the error for one that is not answered
routes.py        routes with their schemas, and what they answer
jobs.py          what one request asks of a model, row by row (translation.py, completion.py), and whose row is next
worker.py        the one thread that owns a model and its drivers
served_run.py    a run under its name, with a worker on each device, and its languages
models.py        several runs: loaded on first use, unloaded under a limit, replaced by newer weights; a job's way and back
corrections.py   corrections of a run on the disk, and who learns them (learning.py)
auth.py          hosts, origins and keys
middleware.py    who may ask, of what size and in what time, and the count of what became of each request
libretranslate.py, openai.py, translations.py     the dialects
pages.py, training.py                             the live page
server.py, command.py                             all of it together, from start to SIGTERM
"""
