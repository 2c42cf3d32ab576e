package sql

import "context"

// ForgetOld removes old keys at once.
func (p *Pool) ForgetOld(ctx context.Context) { p.forgetOld(ctx) }
