/** Errors in the words of people. The gallery says them in English, with a code for other languages. */

import { GalleryError } from "./client.ts";
import { toast } from "./dom.ts";
import { language } from "./language.ts";
import { t } from "./texts.ts";

const portuguese: Record<string, string> = {
  no_name: "É preciso um nome, para que os outros saibam quem é.",
  not_joined: "Leia o código desta galeria para entrar.",
  session_expired: "A sua visita expirou: leia o código outra vez.",
  bad_invitation: "Este convite não é válido: leia o código outra vez.",
  used_invitation: "Este convite já foi usado: peça outro.",
  too_many_tries: "Demasiados convites errados: espere um minuto.",
  bad_pass: "Esta ligação não é válida: leia o código.",
  expired_pass: "Esta ligação expirou: leia o código.",
  unknown_gallery: "Esta galeria não conhece a sua: leia o código.",
  blocked: "O anfitrião bloqueou-o nesta galeria.",
  no_right: "Não tem permissão para isto. Peça ao anfitrião.",
  over_quota: "Já publicou aqui tudo o que pode.",
  no_gallery: "Essa galeria não existe aqui.",
  no_guest: "Esse convidado não existe.",
  not_found: "Já não existe; pode ter sido apagada.",
  no_upload: "Esse envio já não existe; pode ter expirado.",
  no_lan: "A galeria é só para esta máquina: inicie-a com --lan.",
  no_node: "O nó desta galeria não responde.",
  too_large: "O ficheiro é demasiado grande.",
  too_many: "São demasiados ao mesmo tempo: espere um pouco.",
  busy: "Ainda está a ser enviada.",
  disk_full: "O disco desta galeria está cheio.",
  disk: "O disco da galeria falhou.",
  bad_picture: "Esta imagem não se pode ler.",
  bad_query_syntax: "A fórmula tem um erro no carácter {position}.",
  bad_query: "A fórmula não é válida.",
  bad_tag: "Uma etiqueta tem caracteres que não pode ter.",
  not_owner: "Só quem publicou uma foto a pode apagar.",
  timeout: "Ninguém respondeu a tempo.",
  offline: "Não se consegue chegar à galeria.",
  error: "Erro interno da galeria.",
};

/** A message in the chosen language; the gallery's own if its code is not known. */
export function messageOf(code: string | undefined, message: string, position?: number): string {
  const text = language === "pt" && code ? portuguese[code] : undefined;
  return text ? text.replace("{position}", String(position ?? "")) : message;
}

export function errorText(error: unknown): string {
  if (error instanceof GalleryError) return messageOf(error.code, error.message, error.position);
  if (error instanceof TypeError) return t("unreachable"); // a request that nobody answered
  return error instanceof Error ? error.message : String(error);
}

export function showError(error: unknown): void {
  toast(errorText(error), "bad");
}
