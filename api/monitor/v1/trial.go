package v1

// What the program in the container of a trial looks at, by the names that it is
// given after the word. For each it says the name and "yes", or "no: " and why, in
// a line of its own, and the word after that.
const (
	// TrialSeccomp wants a filter that refuses umask(2).
	TrialSeccomp = "seccomp"
	// TrialReadOnly wants a folder of the host, with all that is mounted below it, read-only
	// at TrialReadOnlyPath. What is mounted there follows the name and a colon.
	TrialReadOnly = "recursive-read-only-mounts"
	// TrialDevice wants the device that zeros are read from at TrialDevicePath.
	TrialDevice = "devices"
)

// Where they are looked for.
const (
	TrialReadOnlyPath = "/fairlead-read-only"
	TrialDevicePath   = "/dev/fairlead-trial"
)
