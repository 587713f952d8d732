package host

import "golang.org/x/sys/unix"

// x32 says whether the kernel may run programs of the x32 ABI, whose system
// calls have a number with this bit.
func x32() bool {
	const bit = 0x40000000
	if filtered() {
		return true // a filter that does not know the ABI kills whoever uses it
	}
	_, _, err := unix.RawSyscall(bit|unix.SYS_GETPID, 0, 0, 0)
	return err != unix.ENOSYS
}
