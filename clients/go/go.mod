module procaas/clients/go

go 1.25
