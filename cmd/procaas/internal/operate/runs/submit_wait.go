package runs

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/model"
)

// isTime reports whether an argument is a time for a flag rather than a file.
func isTime(arg string) bool {
	_, err := time.ParseDuration(arg)
	_, missing := os.Stat(arg)
	return err == nil && missing != nil
}

// submitAndWait sends an event, waits for the end of its run and prints the result.
func submitAndWait(q *cli.Call, body json.RawMessage, wait time.Duration) error {
	until := time.Now().Add(wait)
	result, reply, err := q.SubmitAndWait(q.Ctx, body, min(wait, rest.MaxWait))
	if err != nil {
		return err
	}
	for result.Status == "" && time.Until(until) > 0 {
		v, err := q.AwaitRun(q.Ctx, result.Run, min(time.Until(until), rest.MaxWait))
		if err != nil {
			return err
		}
		if !v.Status.Ended() {
			continue // the node is stopping or has too many waiting clients
		}
		if reply, err = json.Marshal(wire.ResultOf(result.Receipt, &v)); err != nil {
			return err
		}
		result.Status = string(v.Status)
	}
	if err := q.PrintJSON(reply); err != nil {
		return err
	}
	if result.Status == "" {
		return fmt.Errorf("run %s has not ended within %s, and goes on; procaas runs show %s tells how far it is", result.Run, wait, result.Run)
	}
	return cli.FindingsIf(result.Status != string(model.Succeeded))
}
