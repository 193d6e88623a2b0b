/** A key as it is shown, without its text and hash. Times are ISO 8601. */
export interface ListedKey {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly string[];
  /** empty means all */
  readonly projects: readonly string[];
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly last_used_at: string | null;
}

/** A new key, shown only this once. */
export interface CreatedKey extends Pick<ListedKey, 'id' | 'name' | 'scopes' | 'projects' | 'expires_at'> {
  readonly key: string;
}
