"""Runs ClickHouse out of a shared library: LIBRARY ENTRY-POINT ARGUMENT..., as `clickhouse ARGUMENT...` would. Ends with whoever started it."""
import ctypes
import signal
import sys

library, entry_point, *arguments = sys.argv[1:]
if sys.platform == 'linux':
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
# ctrl-C in the terminal of the tests is for them: they end this process
signal.signal(signal.SIGINT, signal.SIG_IGN)
words = [word.encode() for word in ['clickhouse', *arguments]]
clickhouse = ctypes.CDLL(library)
main = getattr(clickhouse, entry_point)
argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
if entry_point != 'chdb_query_cmdline':
    sys.exit(main(len(words), argv))
main.restype = ctypes.c_void_p
clickhouse.chdb_result_error.restype = ctypes.c_char_p
clickhouse.chdb_result_error.argtypes = [ctypes.c_void_p]
sys.exit(clickhouse.chdb_result_error(main(len(words), argv)).decode())
