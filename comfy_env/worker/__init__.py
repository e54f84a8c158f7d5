"""What runs inside an environment: standard library only, Python 3.9 and later, shipped to the worker as a folder.

Its modules import each other relatively and nothing else of this project, since the folder is all a worker has.
"""
