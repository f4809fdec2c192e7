package cli

import (
	"bytes"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// output is a buffer for several goroutines.
type output struct {
	sync.Mutex
	bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.Buffer.Write(p)
}

func (o *output) take() string {
	o.Lock()
	defer o.Unlock()
	defer o.Reset()
	return o.Buffer.String()
}

// TestProgressWithoutTerminal: work must print nothing in its first two seconds. Then it must print a line each second,
// and later at least every tenth of its time, until it is over.
func TestProgressWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		b := newBar("sealing", "", 4, &out)
		b.Add(1)
		time.Sleep(quietFor - time.Millisecond)
		require.Empty(t, out.take())
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, "sealing: 1 of 4, 2 s\n", out.take())
		b.Add(1)
		time.Sleep(3 * time.Second)
		require.Equal(t, "sealing: 2 of 4, 3 s\nsealing: 2 of 4, 4 s\nsealing: 2 of 4, 5 s\n", out.take())
		time.Sleep(10*time.Minute - 5*time.Second)
		printed := regexp.MustCompile(`(?m)^sealing: 2 of 4, \d+ s$`).FindAllString(out.take(), -1)
		require.Greater(t, len(printed), 30)
		require.Less(t, len(printed), 80, "few lines for long work")
		b.Add(2)
		time.Sleep(5 * time.Minute)
		require.Empty(t, out.take(), "it is over")
		require.Zero(t, shown.Load())
	})
}

// TestProgressWithoutTotal: a bar without a total must count what is done, and end with Finish.
func TestProgressWithoutTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		b := newBar("read", " bytes", 0, &out)
		_, err := b.Write(make([]byte, 7))
		require.NoError(t, err)
		time.Sleep(quietFor + time.Millisecond)
		require.Equal(t, "read: 7 bytes, 2 s\n", out.take())
		b.SetTotal(14)
		time.Sleep(time.Second)
		require.Equal(t, "read: 7 of 14 bytes, 3 s\n", out.take())
		b.Finish()
		b.Finish()
		time.Sleep(time.Minute)
		require.Empty(t, out.take())
	})
}

// TestWorking: a command that shows no bar must say that it works, and one that serves must not.
func TestWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		done := working("doona task new", &out)
		defer done()
		time.Sleep(quietFor + time.Millisecond)
		require.Equal(t, "doona task new: working, 2 s\n", out.take())
		b := newBar("calibrating", "", -1, &out)
		time.Sleep(quietFor + time.Second)
		require.NotContains(t, out.take(), "working")
		b.Finish()
		time.Sleep(time.Second)
		require.Contains(t, out.take(), "doona task new: working, 6 s\n")
		Serves()
		defer serves.Store(false)
		time.Sleep(time.Minute)
		require.Empty(t, out.take())
	})
}
