/* What Apple's Go binding needs of FoundationDB's C API, version 730: declarations only, so that
 * package foundationdb can be compiled where the client library is not installed. fdb_c.c beside it
 * has functions of these names that do nothing. */
#pragma once
#include <stdint.h>

typedef struct FDB_future FDBFuture;
typedef struct FDB_database FDBDatabase;
typedef struct FDB_tenant FDBTenant;
typedef struct FDB_transaction FDBTransaction;

typedef int fdb_error_t;
typedef int fdb_bool_t;
typedef int FDBNetworkOption;
typedef int FDBDatabaseOption;
typedef int FDBTransactionOption;
typedef int FDBMutationType;
typedef int FDBStreamingMode;
typedef int FDBConflictRangeType;

#pragma pack(push, 4)
typedef struct {
	const uint8_t *key;
	int key_length;
} FDBKey;
typedef struct {
	const uint8_t *key;
	int key_length;
	const uint8_t *value;
	int value_length;
} FDBKeyValue;
#pragma pack(pop)

typedef void (*FDBCallback)(FDBFuture *, void *);

const char *fdb_get_error(fdb_error_t);
fdb_error_t fdb_select_api_version_impl(int, int);
int fdb_get_max_api_version(void);
fdb_error_t fdb_network_set_option(FDBNetworkOption, const uint8_t *, int);
fdb_error_t fdb_setup_network(void);
fdb_error_t fdb_run_network(void);
fdb_error_t fdb_stop_network(void);

void fdb_future_cancel(FDBFuture *);
void fdb_future_release_memory(FDBFuture *);
void fdb_future_destroy(FDBFuture *);
fdb_bool_t fdb_future_is_ready(FDBFuture *);
fdb_error_t fdb_future_set_callback(FDBFuture *, FDBCallback, void *);
fdb_error_t fdb_future_get_error(FDBFuture *);
fdb_error_t fdb_future_get_int64(FDBFuture *, int64_t *);
fdb_error_t fdb_future_get_key(FDBFuture *, const uint8_t **, int *);
fdb_error_t fdb_future_get_value(FDBFuture *, fdb_bool_t *, const uint8_t **, int *);
fdb_error_t fdb_future_get_key_array(FDBFuture *, const FDBKey **, int *);
fdb_error_t fdb_future_get_keyvalue_array(FDBFuture *, const FDBKeyValue **, int *, fdb_bool_t *);
fdb_error_t fdb_future_get_string_array(FDBFuture *, const char ***, int *);

fdb_error_t fdb_create_database(const char *, FDBDatabase **);
fdb_error_t fdb_create_database_from_connection_string(const char *, FDBDatabase **);
void fdb_database_destroy(FDBDatabase *);
fdb_error_t fdb_database_set_option(FDBDatabase *, FDBDatabaseOption, const uint8_t *, int);
fdb_error_t fdb_database_create_transaction(FDBDatabase *, FDBTransaction **);
fdb_error_t fdb_database_open_tenant(FDBDatabase *, const uint8_t *, int, FDBTenant **);
FDBFuture *fdb_database_reboot_worker(FDBDatabase *, const uint8_t *, int, fdb_bool_t, int);
FDBFuture *fdb_database_get_client_status(FDBDatabase *);
fdb_error_t fdb_tenant_create_transaction(FDBTenant *, FDBTransaction **);
void fdb_tenant_destroy(FDBTenant *);

void fdb_transaction_destroy(FDBTransaction *);
void fdb_transaction_cancel(FDBTransaction *);
void fdb_transaction_reset(FDBTransaction *);
fdb_error_t fdb_transaction_set_option(FDBTransaction *, FDBTransactionOption, const uint8_t *, int);
void fdb_transaction_set_read_version(FDBTransaction *, int64_t);
FDBFuture *fdb_transaction_get_read_version(FDBTransaction *);
FDBFuture *fdb_transaction_get(FDBTransaction *, const uint8_t *, int, fdb_bool_t);
FDBFuture *fdb_transaction_get_key(FDBTransaction *, const uint8_t *, int, fdb_bool_t, int, fdb_bool_t);
FDBFuture *fdb_transaction_get_range(FDBTransaction *, const uint8_t *, int, fdb_bool_t, int,
	const uint8_t *, int, fdb_bool_t, int, int, int, FDBStreamingMode, int, fdb_bool_t, fdb_bool_t);
FDBFuture *fdb_transaction_get_estimated_range_size_bytes(FDBTransaction *, const uint8_t *, int,
	const uint8_t *, int);
FDBFuture *fdb_transaction_get_range_split_points(FDBTransaction *, const uint8_t *, int,
	const uint8_t *, int, int64_t);
FDBFuture *fdb_transaction_get_addresses_for_key(FDBTransaction *, const uint8_t *, int);
FDBFuture *fdb_transaction_get_approximate_size(FDBTransaction *);
FDBFuture *fdb_transaction_get_versionstamp(FDBTransaction *);
fdb_error_t fdb_transaction_get_committed_version(FDBTransaction *, int64_t *);
void fdb_transaction_set(FDBTransaction *, const uint8_t *, int, const uint8_t *, int);
void fdb_transaction_clear(FDBTransaction *, const uint8_t *, int);
void fdb_transaction_clear_range(FDBTransaction *, const uint8_t *, int, const uint8_t *, int);
void fdb_transaction_atomic_op(FDBTransaction *, const uint8_t *, int, const uint8_t *, int,
	FDBMutationType);
fdb_error_t fdb_transaction_add_conflict_range(FDBTransaction *, const uint8_t *, int,
	const uint8_t *, int, FDBConflictRangeType);
FDBFuture *fdb_transaction_watch(FDBTransaction *, const uint8_t *, int);
FDBFuture *fdb_transaction_commit(FDBTransaction *);
FDBFuture *fdb_transaction_on_error(FDBTransaction *, fdb_error_t);
