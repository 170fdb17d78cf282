"""The witness: counts every dispatch beside the candidate's own counters, reads back, perturbs. Part of the graders."""
