"""Starts a command in several processes by MPI's ``mpiexec``, and watches them: ``python -m mxdp.launch``.

``mpiexec`` starts a guard for each rank, and the guard starts the command. The guards report to the launcher by TCP::

    launcher: mxdp.launch.job  <- lines, heartbeats, exit status -  guard of rank 0: mxdp.launch.guard  ->  COMMAND
                               <-----------------------------------  guard of rank 1                     ->  COMMAND
      |                                                                  ^
      + mpiexec ---------------------------------------------------------+

A guard stays awake when its command is stopped, so it can say so, and end it. Where the connection breaks or is silent,
both sides act alone: the launcher ends the job, a guard ends its command.
"""
