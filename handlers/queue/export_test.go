package queue

import "github.com/jackc/pgx/v5/pgxpool"

// Pool returns the connections of a store.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }
