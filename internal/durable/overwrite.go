package durable

import "os"

// Overwrite replaces bytes inside a file, durably. A crash may leave any part of them as it was.
func Overwrite(f *os.File, data []byte, at int64) error {
	err := step(Step{Op: OpWrite, Path: f.Name(), At: at, Data: data}, func() error {
		_, err := f.WriteAt(data, at)
		return err
	})
	if err != nil {
		return err
	}
	return step(Step{Op: OpSync, Path: f.Name()}, func() error { return syncData(f) })
}
