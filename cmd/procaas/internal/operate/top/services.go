package top

import (
	"fmt"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/guard"
)

func servicesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "services", Short: "List the services that handlers call: which are down, and how many calls each takes", Args: cobra.NoArgs,
		Long: `services lists the services as one node sees them. Each node finds out by itself how
many calls a service takes at once, and whether it is down. Its columns include

  STATE    up, failing, down (one call at a time finds out when it is back), or
           paused until the time that the service named in Retry-After
  LIMIT    calls that this node makes at once; ~ if it adapts to the service
  WAITING  runs in line on this node, and parked runs of all nodes
  OK       how many calls succeeded in the last ten seconds`,
	}
	cli.ServerFlags(c)
	header := "SERVICE\tSTATE\tLIMIT\tNOW\tWAITING\tOK\tOWNER\tLAST ERROR"
	return cli.Lists(c, func(q *cli.Call) ([]guard.ServiceInfo, error) { return q.Services(q.Ctx) }, header, func(s guard.ServiceInfo) cli.Row {
		return cli.Row{
			s.ID, serviceState(&s), serviceLimit(&s), s.InFlight, s.Waiting + s.Parked, percentText(s.SuccessRatio), cli.Dash(s.Owner),
			cli.Dash(oneLine(s.LastError)),
		}
	})
}

func serviceState(s *guard.ServiceInfo) string {
	switch state := s.State(); {
	case state == guard.ServicePaused:
		return state + cli.Until(s.ClosedUntil)
	case state != guard.ServiceUp && s.FailingSince != nil:
		return state + " since " + cli.Time(*s.FailingSince)
	default:
		return state
	}
}

// serviceLimit formats the maximum number of concurrent calls of a node to a service.
func serviceLimit(s *guard.ServiceInfo) string {
	switch {
	case s.Limit == nil:
		return "-"
	case s.Adaptive:
		return fmt.Sprintf("~%d", *s.Limit)
	}
	return fmt.Sprint(*s.Limit)
}
